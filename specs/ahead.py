"""One row per rule of ahead-of-time compilation: what eager shows, and what keeps it so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specs.table import Table


@dataclass(frozen=True)
class Rule:
    """``eager``: what a user can observe. ``kept``: how a compiled graph shows the same.

    ``answer``: "compiled"; "uncompiled": the graph runs as it is, and says why; "refused": an
    error, where eager has none.
    """

    name: str
    eager: str
    kept: str
    answer: Literal["compiled", "uncompiled", "refused"] = "compiled"


#: Source: eager's behaviour, observed; torch's documentation of autograd's mechanics.
AHEAD: Table[Rule] = Table(
    "rules of ahead-of-time compilation",
    [
        Rule(
            "written input",
            "An input that the graph writes to has its new values after the call.",
            "The functional graph returns them, and the epilogue copies them into the input, "
            "unless what is compiled without gradients has written them there already.",
        ),
        Rule(
            "tracked write",
            "A write that autograd records gives the input a gradient function.",
            "The trace writes to a copy of the input, the new value is an output with a tangent, "
            "and the epilogue's copy is recorded.",
        ),
        Rule(
            "untracked write",
            "A write under no_grad leaves the gradient flag and function of the input alone.",
            "The epilogue's copy is not recorded.",
        ),
        Rule(
            "layout of what is written to",
            "What is written to in place keeps its strides, also gaps between its elements, and "
            "kernels that read it after that round by them.",
            "A functional write has no gaps: `aot_eager` (`keeps_gaps=True`) lays its value out. "
            "What a code generator computes rounds its own way.",
        ),
        Rule(
            "statistics",
            "Running statistics and counters of a batch norm change, which no version shows.",
            "Functionalisation is asked, not version counters.",
        ),
        Rule(
            "version of an input",
            "An input's version tells of writes, also of those that change nothing, but not of one "
            "to x.data or of new statistics: what saved the input before may have its backward.",
            "The epilogue copies the values of the latter into the input's data, and counts the "
            "former.",
        ),
        Rule(
            "version of a result",
            "A result's version tells of the graph's writes to it: each once, by operators that a "
            "program calls.",
            "The results are given these versions before anything is saved for the backward. What "
            "the code of a custom operator writes to its argument is one write.",
        ),
        Rule(
            "gradient mode",
            "A graph that switches gradients on or off leaves them so.",
            "The epilogue's last line sets the mode that the graph leaves.",
        ),
        Rule(
            "inference mode",
            "What is made in a region of inference mode is an inference tensor.",
            "The trace has gradients off in the place of the region, and the epilogue makes a "
            "tensor of the result's memory in inference mode.",
        ),
        Rule(
            "metadata of an input",
            "t_, unsqueeze_ and their like change an input's sizes and strides.",
            "The epilogue gives the input the sizes and strides that eager's has.",
        ),
        Rule(
            "view of an input",
            "An output that is a view of an input shares its memory, and autograd knows the base.",
            "The epilogue makes the view again of the caller's tensor, by the same operations.",
        ),
        Rule(
            "same object",
            "An input that is returned is the very object; so is a tensor returned twice.",
            "The epilogue returns the caller's object, or the first output again.",
        ),
        Rule(
            "views of one result",
            "Outputs that share memory with each other still do, and writes to one show in others.",
            "Their common base leaves the graph, and the epilogue makes the views of it.",
        ),
        Rule(
            "view of a view",
            "A view leads to the view that it was made of: gradients of one by the other, hooks.",
            "It is made again of that one, output or argument, by the steps between the two.",
        ),
        Rule(
            "result that is a view",
            "A view of what nobody else has is one: it has a base, detach_ is an error, and so is "
            "a write to one of the views that unbind, split or chunk make at once.",
            "It is made again of its base, which leaves the graph, also where it is the only "
            "result.",
        ),
        Rule(
            "overlapping result",
            "An expanded output has strides of 0.",
            "Its base leaves the graph, and the epilogue expands it.",
        ),
        Rule(
            "strides of outputs",
            "Each output has the strides that eager's operators and writes give it.",
            "A value that lies otherwise is copied into memory of eager's layout, in the graph.",
        ),
        Rule(
            "strides of tangents",
            "A gradient may come with any strides.",
            "One that lies otherwise than the output is copied into the output's layout, or has a "
            "backward of its own (tangents_as_given), which rounds as eager's.",
        ),
        Rule(
            "gradient flags",
            "Outputs that depend on no input with a gradient have none; integers never have.",
            "They are marked as not differentiable.",
        ),
        Rule(
            "missing gradient",
            "What an output without a gradient alone would reach gets None, and is not computed.",
            "The backward is compiled for each set of outputs without gradients, with everything "
            "taken out that they alone reach.",
        ),
        Rule(
            "zeros for a missing gradient",
            "A function of several results gets zeros for those without a gradient.",
            "For such a set of outputs autograd's part is traced again, with the gradients that "
            "are there. Where its forward is not what ran, zeros stand for a missing value that a "
            "node reads beside another one.",
        ),
        Rule(
            "gradients of several graphs",
            "What comes back to a tensor from its readers is added up one by one, in the order of "
            "the backward.",
            "Where others may read it too, autograd is given what each reader in the graph brings "
            "back, under aot_eager; other backends give their graph's sum.",
        ),
        Rule(
            "checks of gradients",
            "A loss that depends on a complex eigenvector's phase is an error in the backward.",
            "Graphs with complex eigenvectors or singular vectors that train run as they are.",
            "uncompiled",
        ),
        Rule(
            "no derivative",
            "A backward raises where it comes to an operator without a derivative (x // 2), if "
            "that is on the way to what is asked for.",
            "Nothing comes back through it in the trace. A call's backward asks autograd where it "
            "goes, and raises eager's error, before any gradient is there.",
        ),
        Rule(
            "derivative that asks",
            "The derivative of prod divides by each factor, unless one is zero.",
            "On the CPU the backward has an operator that asks. Elsewhere it has the formula that "
            "asks nothing, and rounds otherwise.",
        ),
        Rule(
            "sizes that change",
            "A program runs with tensors of any sizes.",
            "Sizes are symbols, which the graphs take and save as numbers; what was decided by "
            "them is guarded.",
        ),
        Rule(
            "sizes from data",
            "nonzero, masks and item give sizes that depend on data, and bad ones raise.",
            "They are symbols that the graph itself gives; what was assumed of them is a check in "
            "the graph.",
        ),
        Rule(
            "unused input",
            "An input that no output depends on gets None.",
            "Its gradient is None in the joint graph too.",
        ),
        Rule(
            "second backward",
            "A second backward without retain_graph is an error, with retain_graph it is not.",
            "Tensors are saved by save_for_backward, which sees to both; what nobody else has, no "
            "input, output or view of one, is a plain attribute that the last backward takes away.",
        ),
        Rule(
            "saved as eager saves",
            "Between forward and backward the program may write to inputs and results that "
            "autograd has not saved.",
            "The fewest bytes are saved of what eager saves, of what nobody else has, and of "
            "parameters: nothing is computed again from other memory that others have.",
        ),
        Rule(
            "one backward of a write to a view",
            "What passes a write to a view has one backward, though nothing on its way is saved; "
            "what passes a write to another tensor has any number.",
            "Whether a written input is a view, the call tells; the node of the call knows which "
            "gradients pass the write.",
        ),
        Rule(
            "backward of some outputs",
            "Outputs that share nothing that is saved have a backward each (the losses of a GAN).",
            "A backward of some outputs leaves the saved tensors that the others alone read; what "
            "would read another one's again raises.",
        ),
        Rule(
            "way of a result",
            "A backward goes to the inputs that its result was computed from, and frees only what "
            "they were computed by; hooks on others are not called.",
            "Where not all results lead to an input that has a function or a hook, the results "
            "have a function of autograd for each set of such inputs, and these have their own. "
            "One of them runs the backward for all results that have a gradient.",
        ),
        Rule(
            "gradients of some inputs",
            "A backward that is asked for certain gradients computes no others, and a write to "
            "what only those would need is no error of it.",
            "Each set of inputs that is asked for has a backward, compiled when it first runs "
            "(16 sets, then one for all inputs).",
        ),
        Rule(
            "written after the call",
            "A saved tensor that is changed before a backward that comes to it is an error.",
            "A call keeps what it saves by itself, with the versions of what others may have "
            "(inputs, outputs, views of them), and compares these before a backward; where one was "
            "changed, autograd is asked to say the error if the results at hand need it, or if "
            "eager would come to a function that has saved it, as the trace has noted. Of what "
            "eager alone saves the call keeps something that counts writes with it. Under "
            "saved-tensor hooks save_for_backward has all, and those are unpacked that the results "
            "need (torch 2.11 can unpack all or none).",
        ),
        Rule(
            "saved written input",
            "What is saved of an input that the graph has written to is the input: a write to it "
            "behind the graph is an error of the backward, and one to its data is read there.",
            "The trace asks which tensors autograd has saved, and whose memory and versions they "
            "have. Behind the epilogue the call keeps the inputs themselves, or views of them, in "
            "the places of their last values, and their versions. What lies otherwise (gaps that a "
            "code generator does not keep, views with symbols) is a value of its own with the "
            "input's versions. Hooks are given values.",
        ),
        Rule(
            "saved data",
            "A write to x is none to what was saved of x.data, though it is read there.",
            "That is kept without versions.",
        ),
        Rule(
            "double backward",
            "Gradients have gradients.",
            "With create_graph the backward runs the graph again as it is, under autograd, from "
            "the generator's state of the call; its gradients are that run's.",
            "uncompiled",
        ),
        Rule(
            "second derivative by a result",
            "Operations keep their results (exp, tanh), and the next read them: derivatives of "
            "gradients go to results, their hooks and who asks for theirs.",
            "The inputs of the second run come out of a function of autograd that leads to the "
            "call's results too. What comes to the run's results is taken away there, and goes on "
            "from that function, which all of the run lies before. Results that no gradient "
            "depends on, which is found by the first such run, are not led to.",
        ),
        Rule(
            "double backward of another run",
            "Gradients of what draws on a device, reads what it writes to, or whose inputs are "
            "gone or were written to, have gradients.",
            "A second run would be another one. The backward of the backward is traced, for what "
            "the forward has saved, and leads to the leaves, to what is saved, and to what a call "
            "keeps of its other inputs: tensors of no elements. So is the backward of that, and so "
            "on. Another trace tells what each depends on, so that flags and hooks are eager's. It "
            "raises where a derivative passes a result that has a hook or is asked for.",
            "compiled",
        ),
        Rule(
            "forward-mode AD",
            "Dual inputs give dual outputs.",
            "A call inside a dual level runs the graph as it is.",
            "uncompiled",
        ),
        Rule(
            "transformations",
            "vmap, grad and the other transformations of torch.func take any function.",
            "A call inside one runs the graph as it is.",
            "uncompiled",
        ),
        Rule(
            "batch of gradients",
            "A backward takes a batch of gradients: vmap over autograd.grad, is_grads_batched.",
            "The compiled backward runs for each of them, and what comes of it is a batch again.",
            "compiled",
        ),
        Rule(
            "saved-tensor hooks",
            "pack and unpack hooks see what autograd saves.",
            "They see what the compiled graph saves, which may be other tensors. Where it writes "
            "to what it has saved, past autograd, a call under hooks runs it as it is: they are "
            "called before the write.",
        ),
        Rule(
            "gradient of a result",
            "autograd.grad, retain_grad and hooks take any tensor that is on the way.",
            "Where a graph ends since autograd is asked about a tensor that it made, it is cut "
            "behind that tensor, and what comes after is another part.",
        ),
        Rule(
            "gradient of a result by another",
            "autograd.grad of a result goes by any tensor that it was computed from.",
            "A result whose way to the inputs leads past other results, views or written inputs "
            "goes through a function of autograd that leads to these too. Where a backward asks "
            "for one of these, it runs in stages: what comes to each of them, then what goes on "
            "from there. With create_graph the graph runs again under autograd, with the caller's "
            "tensors in the places of these from the last write to each on; where it reads one by "
            "an older view behind that, it raises.",
        ),
        Rule(
            "hook on an inner result",
            "A hook on a result sees what comes back through all that is computed from it.",
            "Where what is on the way of a result has a hook or retains its gradient, the backward "
            "runs in stages; with create_graph the graph runs again under autograd, past the "
            "caller's tensors and their hooks.",
        ),
        Rule(
            "order of hooks",
            "Gradients come to results and leaves one by one: to what was made or read last first.",
            "The graph takes its inputs in an order of which autograd's engine makes eager's, "
            "where nothing else waits for it, and no other graph reads the same leaf. Where not "
            "all results lead to a leaf that has a hook, it comes before those that all lead to. "
            "Hooks on results are given to autograd anew, in eager's order, when one comes that is "
            "to be called before others; all are called before those on the graph's leaves.",
        ),
        Rule(
            "hook on one of several results",
            "A hook on a result is called where that has a gradient, whatever others have.",
            "Autograd calls hooks of a function of several results also for those without a "
            "gradient; such a call is no call of the caller's hook.",
        ),
        Rule(
            "hook on a leaf",
            "A hook on a leaf is called where something comes to it, whenever it was registered.",
            "One function leads to all leaves: hooks that were registered behind the call are not "
            "told of nothing; for those before it, there is a function for each way.",
        ),
        Rule(
            "hook on a view of an inner result",
            "So does one on a view that is returned, or on an input that was written to.",
            "These are on the way too; what comes to them goes on through their own functions.",
        ),
        Rule(
            "hook on a view that is written to",
            "A write to a view goes to its base: gradients from there pass the view's old hooks.",
            "With gradients, a call with such a hook runs the graph as it is.",
            "uncompiled",
        ),
        Rule(
            "hooks while tracing",
            "pack and unpack hooks are called where a tensor is saved and read, and nowhere else.",
            "A graph that is compiled under a caller's hooks is traced without them.",
        ),
        Rule(
            "anomaly mode",
            "Every function of the backward is asked for results that are no numbers.",
            "The trace is made without it; the compiled backward is asked as one function.",
        ),
        Rule(
            "gradients off",
            "A graph without gradients saves nothing.",
            "It is compiled alone, by the compiler for inference.",
        ),
        Rule(
            "flags where gradients are off",
            "What a product of tensors computes by may depend on whether one requires gradients, "
            "also under no_grad.",
            "The trace's inputs have their flags in every mode.",
        ),
        Rule(
            "autocast",
            "Operators cast their inputs, a parameter once for all of them.",
            "The casts are in the graphs, which run without autocast. A backward that runs under "
            "autocast is traced under it: a graph for each of its dtypes.",
        ),
        Rule(
            "remembered cast",
            "A cast of a leaf is remembered to the end of the outermost autocast block: gradients "
            "of all its readers add up in the lower precision, and writes to it go unseen.",
            "That holds for the leaves of one graph. The next graph of a block casts anew, as "
            "behind torch.clear_autocast_cache(), and sees what was written by then: a program "
            "that eager refuses, since it has remembered another dtype, may go on there. Under "
            "torch's front end a leaf that is no parameter is cast for each reader.",
        ),
        Rule(
            "order of draws",
            "Each random operator draws in its turn, and the generator ends where it ends.",
            "All draws of the forward stay in the forward graph, in order, used or not.",
        ),
        Rule(
            "checks of values",
            "An operator that looks at values raises if they are wrong (a singular matrix).",
            "Checks are nodes that stay, though nothing reads them.",
        ),
        Rule(
            "checkpoint",
            "A checkpointed region is computed again in the backward, with the same masks.",
            "It is traced in the backward a second time; its draws start from states of the "
            "generator that the forward kept.",
        ),
        Rule(
            "selective checkpoint",
            "What a checkpoint's policy says is saved, and the rest computed again.",
            "The policy is asked while the region is traced; the backward reads what it saves.",
        ),
        Rule(
            "one backward of a selective checkpoint",
            "What its policy saves is there for one backward, though the graph is retained.",
            "Nodes of a region that is computed again with it are marked, and a second backward of "
            "outputs that read one raises.",
        ),
        Rule(
            "write in a checkpoint",
            "A recomputed region reads what is no argument of it as that is by then, and writes a "
            "second time: a batch norm's statistics count twice.",
            "The call keeps such inputs, without counting writes to them; the backward's graph "
            "takes them, and gives the new values, which are written behind it.",
        ),
        Rule(
            "branches and loops",
            "torch.cond runs one of two functions, and torch.while_loop one until a test fails.",
            "They are operators over functional graphs; the gradient of a branch computes the "
            "branch again, and draws again. In a checkpoint, a branch draws the same numbers when "
            "the region is computed again.",
        ),
        Rule(
            "steps that are kept",
            "torch.while_loop has gradients, through each of its steps.",
            "The forward keeps what each step gave, as many as there were. A scan from the last to "
            "the first computes each again. Where torch's own gradients lack something (what is "
            "carried asks for none in the beginning, or no step runs), these are Python's.",
        ),
        Rule(
            "loops of the second run",
            "A second derivative goes through branches and loops, too.",
            "The graph that runs again has Python's in the place of torch's operators, whose "
            "gradients have no derivative.",
        ),
        Rule(
            "steps over a dimension",
            "scan and map run a function for each slice of their inputs.",
            "They are operators over the functional graph of one step. The backward of scan goes "
            "from the last step to the first, and computes each again from what it carried and "
            "drew, which the forward has kept. Gradients of steps with a branch that draws are "
            "uncompiled.",
        ),
        Rule(
            "early release",
            "What the backward has used is freed while it runs, unless the graph is retained.",
            "The backward takes its tensors in a list that nobody else holds.",
        ),
        Rule(
            "custom function",
            "A custom autograd.Function has the backward that its author wrote.",
            "The trace runs it under autograd, so its backward is what is traced. A result that is "
            "a view of an input, made by one, is such a view of the call's input, whose gradient "
            "goes to what the graph gives. Where a result is computed of such a view that is a "
            "result too, the graph runs as it is.",
        ),
        Rule(
            "inputs that share memory",
            "A write to one of two inputs with one memory shows in the other.",
            "Inputs that overlap a written one are views of a common base, which the graph takes; "
            "for each way of overlapping it is compiled again. Without a common storage or, for "
            "autograd, base and dtype, the graph runs as it is.",
        ),
        Rule(
            "memory of another dtype",
            "x.view(torch.int32) shares the memory of x, and a write to one shows in the other.",
            "A common base has the widest dtype, and the others are views of it; the epilogue "
            "reads the caller's memory as the output's dtype.",
        ),
        Rule(
            "views of one base",
            "A saved tensor and a written one may be views of one base, and share its version.",
            "Where tensors are saved, all views of the base of a written input are made views of "
            "it in the graph, whether they overlap or not.",
        ),
        Rule(
            "view older than a write",
            "Autograd has an error for whoever asks a view made without gradients what made it, "
            "once its base was written to.",
            "Such a view of an input is made of it before the graph runs; of a result, and the "
            "result's version tells of a write then.",
        ),
        Rule(
            "write over itself",
            "A few operators write to a tensor whose elements share memory (an expanded one).",
            "The graph runs as it is.",
            "uncompiled",
        ),
        Rule(
            "input given other memory",
            "After x.set_(y) or x.data = y the input has the memory of y, old views have its old "
            "one, and its version tells of set_ alone.",
            "The trace goes on with the new memory, which leaves the graph behind the caller's "
            "outputs; the epilogue's last lines give it to the input in the same way, count what "
            "was written to the input, and make its new views.",
        ),
        Rule(
            "detached input",
            "detach_ and requires_grad_ change whether an input takes part in autograd.",
            "The graph runs as it is.",
            "uncompiled",
        ),
        Rule(
            "other memory",
            "as_strided may reach what another tensor has; set_ takes a storage, or the input was "
            "written to before; resize_ gives a tensor more memory.",
            "The graph runs as it is.",
            "uncompiled",
        ),
        Rule(
            "conjugate bit",
            "A tensor may hold the conjugates or negatives of its values, and a bit that says so.",
            "The graph takes resolved copies, tangents too; a view that has the bit is made again "
            "by the epilogue.",
        ),
        Rule(
            "recurrent network of cuDNN",
            "The library takes all weights as one piece of memory, found by addresses.",
            "The network runs as it is, a part of its own; what is before and behind it is "
            "compiled, but where gradients are switched off or within autocast: the whole graph "
            "runs as it is there.",
            "uncompiled",
        ),
        Rule(
            "other tensors",
            "Sparse, quantised and nested tensors and subclasses compute as their class says.",
            "The graph runs as it is.",
            "uncompiled",
        ),
    ],
)
