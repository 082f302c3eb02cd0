"""Written by ``python -m fastpath.cpu.maths.minimax``: polynomials by Horner's rule."""

import triton
import triton.language as tl


@triton.jit
def _wide(number):
    return tl.full([], number, tl.float64)


@triton.jit
def i0(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(0.014205738899141734), _wide(-0.02173798955834232))
        p = tl.fma(p, t, _wide(0.3923880460434141))
        p = tl.fma(p, t, _wide(1.0584549073926477))
        p = tl.fma(p, t, _wide(8.426859223972475))
        p = tl.fma(p, t, _wide(39.51494364561829))
        p = tl.fma(p, t, _wide(181.46432256548846))
        p = tl.fma(p, t, _wide(723.6178233995698))
        p = tl.fma(p, t, _wide(2545.2548533582926))
        p = tl.fma(p, t, _wide(7794.265997961758))
        p = tl.fma(p, t, _wide(20581.936148379064))
        p = tl.fma(p, t, _wide(46309.30092813812))
        p = tl.fma(p, t, _wide(87553.5337987836))
        p = tl.fma(p, t, _wide(136802.39466087293))
        p = tl.fma(p, t, _wide(173140.53097400154))
        p = tl.fma(p, t, _wide(173140.53095330193))
        p = tl.fma(p, t, _wide(132560.71901244076))
        p = tl.fma(p, t, _wide(74565.4044444406))
        p = tl.fma(p, t, _wide(29127.11111111121))
        p = tl.fma(p, t, _wide(7281.7777777777765))
        p = tl.fma(p, t, _wide(1024.0))
        p = tl.fma(p, t, _wide(64.0))
        p = tl.fma(p, t, _wide(1.0))
    else:
        p = tl.fma(t, 0.15102852880954742, 0.3823588788509369)
        p = tl.fma(p, t, 2.791045904159546)
        p = tl.fma(p, t, 10.475659370422363)
        p = tl.fma(p, t, 32.39691162109375)
        p = tl.fma(p, t, 72.81085205078125)
        p = tl.fma(p, t, 113.77851104736328)
        p = tl.fma(p, t, 113.77774810791016)
        p = tl.fma(p, t, 64.0)
        p = tl.fma(p, t, 16.0)
        p = tl.fma(p, t, 1.0)
    return p


@triton.jit
def i0_tail(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(4195540.408539348), _wide(-1198603.4728483884))
        p = tl.fma(p, t, _wide(156587.95291669003))
        p = tl.fma(p, t, _wide(-10993.29686527337))
        p = tl.fma(p, t, _wide(513.8491037165302))
        p = tl.fma(p, t, _wide(0.1342369777657932))
        p = tl.fma(p, t, _wide(2.3596403511292485))
        p = tl.fma(p, t, _wide(0.6991046858979442))
        p = tl.fma(p, t, _wide(0.22810394983891635))
        p = tl.fma(p, t, _wide(0.09060762780201752))
        p = tl.fma(p, t, _wide(0.04474217076944845))
        p = tl.fma(p, t, _wide(0.0292194055361209))
        p = tl.fma(p, t, _wide(0.028050629090092257))
        p = tl.fma(p, t, _wide(0.049867785050179754))
        p = tl.fma(p, t, _wide(0.3989422804014327))
    else:
        p = tl.fma(t, 7.74832820892334, -2.5168814659118652)
        p = tl.fma(p, t, 0.39460089802742004)
        p = tl.fma(p, t, 0.007304399274289608)
        p = tl.fma(p, t, 0.028675494715571404)
        p = tl.fma(p, t, 0.04986123368144035)
        p = tl.fma(p, t, 0.3989422917366028)
    return p


@triton.jit
def i1(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(3.349305438698112e-05), _wide(-3.8744228066442956e-05))
        p = tl.fma(p, t, _wide(0.0011810259444198056))
        p = tl.fma(p, t, _wide(0.0043647092653196625))
        p = tl.fma(p, t, _wide(0.03667496945708436))
        p = tl.fma(p, t, _wide(0.20640602226157337))
        p = tl.fma(p, t, _wide(1.1151489350251194))
        p = tl.fma(p, t, _wide(5.3216998462645435))
        p = tl.fma(p, t, _wide(22.62381701793434))
        p = tl.fma(p, t, _wide(84.83591075392287))
        p = tl.fma(p, t, _wide(278.3692262680528))
        p = tl.fma(p, t, _wide(791.6120343294807))
        p = tl.fma(p, t, _wide(1929.5544498237239))
        p = tl.fma(p, t, _wide(3979.706029430511))
        p = tl.fma(p, t, _wide(6840.11974171126))
        p = tl.fma(p, t, _wide(9618.918386351997))
        p = tl.fma(p, t, _wide(10821.283184683864))
        p = tl.fma(p, t, _wide(9468.622786595966))
        p = tl.fma(p, t, _wide(6213.78370370371))
        p = tl.fma(p, t, _wide(2912.7111111111108))
        p = tl.fma(p, t, _wide(910.2222222222222))
        p = tl.fma(p, t, _wide(170.66666666666666))
        p = tl.fma(p, t, _wide(16.0))
        p = tl.fma(p, t, _wide(0.5))
    else:
        p = tl.fma(t, 0.048579953610897064, 0.1026335284113884)
        p = tl.fma(p, t, 0.7047551274299622)
        p = tl.fma(p, t, 2.2864155769348145)
        p = tl.fma(p, t, 6.076483726501465)
        p = tl.fma(p, t, 11.376252174377441)
        p = tl.fma(p, t, 14.222359657287598)
        p = tl.fma(p, t, 10.666662216186523)
        p = tl.fma(p, t, 4.0)
        p = tl.fma(p, t, 0.5)
    return p


@triton.jit
def i1_tail(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(-4549577.823242742), _wide(1315272.4512239338))
        p = tl.fma(p, t, _wide(-174699.80146349102))
        p = tl.fma(p, t, _wide(12618.727346605925))
        p = tl.fma(p, t, _wide(-617.1954446273719))
        p = tl.fma(p, t, _wide(2.771970506167239))
        p = tl.fma(p, t, _wide(-2.798052464295788))
        p = tl.fma(p, t, _wide(-0.8028815468523132))
        p = tl.fma(p, t, _wide(-0.2696601044370955))
        p = tl.fma(p, t, _wide(-0.11074137713359793))
        p = tl.fma(p, t, _wide(-0.057525661715235196))
        p = tl.fma(p, t, _wide(-0.04090716765559079))
        p = tl.fma(p, t, _wide(-0.04675104848390463))
        p = tl.fma(p, t, _wide(-0.14960335515053794))
        p = tl.fma(p, t, _wide(0.3989422804014327))
    else:
        p = tl.fma(t, 3.695721387863159, -1.842335820198059)
        p = tl.fma(p, t, 0.2058606743812561)
        p = tl.fma(p, t, -0.058928001672029495)
        p = tl.fma(p, t, -0.04619930684566498)
        p = tl.fma(p, t, -0.1496095210313797)
        p = tl.fma(p, t, 0.3989422917366028)
    return p


@triton.jit
def digamma(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(-0.0013928379317840573), _wide(-0.012461124938586208))
        p = tl.fma(p, t, _wide(-0.05168639855641313))
        p = tl.fma(p, t, _wide(-0.13062647155549298))
        p = tl.fma(p, t, _wide(-0.2227641422442874))
        p = tl.fma(p, t, _wide(-0.26716876518166305))
        p = tl.fma(p, t, _wide(-0.22516067563410422))
        p = tl.fma(p, t, _wide(-0.12276291932236937))
        p = tl.fma(p, t, _wide(-0.022002016231141088))
        p = tl.fma(p, t, _wide(0.03902897191622523))
        p = tl.fma(p, t, _wide(0.06275546286667674))
        p = tl.fma(p, t, _wide(0.07033322414192773))
        p = tl.fma(p, t, _wide(0.07366685121694334))
        p = tl.fma(p, t, _wide(0.08043112055699136))
        p = tl.fma(p, t, _wide(0.08463115237277295))
        p = tl.fma(p, t, _wide(0.09741687455852366))
        p = tl.fma(p, t, _wide(0.09889441979045423))
        p = tl.fma(p, t, _wide(0.12603589409103935))
        p = tl.fma(p, t, _wide(0.11418298286502084))
        p = tl.fma(p, t, _wide(0.18297523829015633))
        p = tl.fma(p, t, _wide(0.12121644676113393))
        p = tl.fma(p, t, _wide(0.32087943116137607))
        p = tl.fma(p, t, _wide(0.08247495027322914))
        p = tl.fma(p, t, _wide(0.7464116198100174))
        p = tl.fma(p, t, _wide(-0.16087760210323812))
        p = tl.fma(p, t, _wide(3.1997759811790365))
    else:
        p = tl.fma(t, -0.05156612768769264, -0.1604997217655182)
        p = tl.fma(p, t, -0.12160821259021759)
        p = tl.fma(p, t, 0.19375063478946686)
        p = tl.fma(p, t, 0.45080283284187317)
        p = tl.fma(p, t, 0.42468130588531494)
        p = tl.fma(p, t, 0.2245539128780365)
        p = tl.fma(p, t, 0.1924540102481842)
        p = tl.fma(p, t, 0.11621123552322388)
        p = tl.fma(p, t, 0.3197701573371887)
        p = tl.fma(p, t, 0.08251607418060303)
        p = tl.fma(p, t, 0.7464303374290466)
        p = tl.fma(p, t, -0.16087760031223297)
        p = tl.fma(p, t, 3.1997759342193604)
    return p


@triton.jit
def digamma_tail(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(0.05290330749477115), _wide(-0.02006780879048999))
        p = tl.fma(p, t, _wide(0.007557553398504696))
        p = tl.fma(p, t, _wide(-0.004166496654608889))
        p = tl.fma(p, t, _wide(0.003968253203720109))
        p = tl.fma(p, t, _wide(-0.008333333332037266))
        p = tl.fma(p, t, _wide(0.08333333333333297))
    else:
        p = tl.fma(t, 0.003765963250771165, -0.008330759592354298)
        p = tl.fma(p, t, 0.0833333283662796)
    return p


@triton.jit
def sinpi(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(2.44931026550684e-07), _wide(-6.972000693805781e-06))
        p = tl.fma(p, t, _wide(0.000148427800950492))
        p = tl.fma(p, t, _wide(-0.0023460808868378496))
        p = tl.fma(p, t, _wide(0.026147847804530916))
        p = tl.fma(p, t, _wide(-0.19075182412143055))
        p = tl.fma(p, t, _wide(0.8117424252833373))
        p = tl.fma(p, t, _wide(-1.6449340668482262))
        p = tl.fma(p, t, _wide(1.0))
    else:
        p = tl.fma(t, 0.02471775747835636, -0.19044390320777893)
        p = tl.fma(p, t, 0.8117159008979797)
        p = tl.fma(p, t, -1.6449333429336548)
        p = tl.fma(p, t, 1.0)
    return p


@triton.jit
def log_of_sum(t):
    if t.dtype == tl.float64:
        p = tl.fma(t, _wide(-1.6418715372520398e-05), _wide(2.5114095958696545e-05))
        p = tl.fma(p, t, _wide(-1.6840578081153758e-05))
        p = tl.fma(p, t, _wide(2.7434059896766243e-05))
        p = tl.fma(p, t, _wide(-5.691714554965278e-05))
        p = tl.fma(p, t, _wide(8.97807534736872e-05))
        p = tl.fma(p, t, _wide(-0.00013830039171566343))
        p = tl.fma(p, t, _wide(0.00022106024705668785))
        p = tl.fma(p, t, _wide(-0.0003555525587680228))
        p = tl.fma(p, t, _wide(0.0005730679295899879))
        p = tl.fma(p, t, _wide(-0.0009287683875114335))
        p = tl.fma(p, t, _wide(0.0015153825455387648))
        p = tl.fma(p, t, _wide(-0.0024918479807946423))
        p = tl.fma(p, t, _wide(0.004136179140483427))
        p = tl.fma(p, t, _wide(-0.006945394664210859))
        p = tl.fma(p, t, _wide(0.011833792108940602))
        p = tl.fma(p, t, _wide(-0.0205488119269406))
        p = tl.fma(p, t, _wide(0.036611854523172074))
        p = tl.fma(p, t, _wide(-0.06768864331087411))
        p = tl.fma(p, t, _wide(0.13260975375420278))
        p = tl.fma(p, t, _wide(-0.2885270990993242))
        p = tl.fma(p, t, _wide(0.8109302162163288))
    else:
        p = tl.fma(t, 0.011898386292159557, -0.002706740517169237)
        p = tl.fma(p, t, -0.002438301919028163)
        p = tl.fma(p, t, -0.0069946302101016045)
        p = tl.fma(p, t, 0.013318675570189953)
        p = tl.fma(p, t, -0.02053624391555786)
        p = tl.fma(p, t, 0.03647415339946747)
        p = tl.fma(p, t, -0.06768916547298431)
        p = tl.fma(p, t, 0.13261424005031586)
        p = tl.fma(p, t, -0.28852710127830505)
        p = tl.fma(p, t, 0.8109301924705505)
    return p
