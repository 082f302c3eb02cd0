"""The files of the campaign."""

import sys

LANGUAGE = """
    test_asyncgen test_augassign test_baseexception test_binop test_bool test_builtin test_call
    test_class test_code test_compare test_compile test_contextlib test_contextlib_async
    test_coroutines test_decorators test_descr test_descrtut test_dictcomps test_dynamic
    test_dynamicclassattribute test_except_star test_exception_group test_exception_hierarchy
    test_exception_variations test_exceptions test_extcall test_finalization test_float test_format
    test_frame test_fstring test_funcattrs test_gc test_generator_stop test_generators
    test_genericalias test_genericclass test_genexps test_global test_grammar test_int
    test_int_literal test_isinstance test_iter test_iterlen test_keywordonlyarg test_listcomps
    test_metaclass test_named_expressions test_opcodes test_ordered_dict test_patma
    test_pep646_syntax test_positional_only_arg test_pow test_property test_raise test_richcmp
    test_scope test_setcomps test_slice test_string_literals test_subclassinit test_super
    test_syntax test_traceback test_type_annotations test_type_cache test_typechecks test_types
    test_typing test_unary test_unpack test_unpack_ex test_weakref test_with test_yield_from
""".split()

LIBRARY = """
    test.test_asyncio.test_futures test.test_asyncio.test_locks test.test_asyncio.test_queues
    test_abc test_abstract_numbers test_argparse test_array test_ast test_base64 test_bisect
    test_bytes test_calendar test_cmath test_cmd test_code_module test_codeop test_collections
    test_complex test_configparser test_contains test_context test_copy test_copyreg test_csv
    test_dataclasses test_decimal test_defaultdict test_deque test_dict test_dictviews test_difflib
    test_dis test_doctest test_enum test_enumerate test_filecmp test_fileinput test_fnmatch
    test_fractions test_functools test_genericpath test_getopt test_gettext test_glob test_graphlib
    test_hash test_hashlib test_heapq test_hmac test_html test_htmlparser test_index test_inspect
    test_ipaddress test_itertools test_json test_linecache test_list test_logging test_long
    test_math test_memoryio test_memoryview test_module test_numeric_tower test_operator
    test_optparse test_pathlib test_pickletools test_pkgutil test_plistlib test_posixpath
    test_pprint test_print test_queue test_random test_range test_re test_reprlib test_rlcompleter
    test_sched test_secrets test_set test_shlex test_sort test_statistics test_string test_strptime
    test_struct test_structseq test_symtable test_tempfile test_textwrap test_thread
    test_threading_local test_timeit test_tuple test_unicode test_unittest test_urlparse
    test_userdict test_userlist test_userstring test_uuid test_warnings test_weakset
""".split()

#: By their new names: the first Python that has each, and the old name.
RENAMED = {"test_str": ((3, 13), "test_unicode")}

for _name, (_first, _old) in RENAMED.items():
    if sys.version_info >= _first:
        LIBRARY[LIBRARY.index(_old)] = _name

FILES = LANGUAGE + LIBRARY

#: Those of the default suite: a second or less each.
FAST = """
    test_grammar test_scope test_generator_stop test_baseexception test_except_star test_raise
    test_with test_unpack test_patma test_class
""".split()

#: Those whose methods are compiled, too: what Python may mean in a compiled frame.
COMPILED = """
    test_abc test_asyncgen test_augassign test_binop test_bisect test_builtin test_call test_class
    test_collections test_complex test_context test_contextlib test_copy test_coroutines
    test_dataclasses test_defaultdict test_deque test_descr test_dict test_dictcomps
    test_dictviews test_dynamicclassattribute test_enum test_enumerate test_except_star
    test_exception_group test_exceptions test_extcall test_float test_format test_fractions
    test_fstring test_funcattrs test_functools test_generator_stop test_generators
    test_genericalias test_genexps test_global test_grammar test_hash test_heapq test_index
    test_inspect test_int test_isinstance test_iter test_iterlen test_itertools test_json
    test_keywordonlyarg test_list test_listcomps test_logging test_math test_metaclass test_module
    test_named_expressions test_numeric_tower test_opcodes test_operator test_ordered_dict
    test_patma test_positional_only_arg test_pow test_pprint test_property test_raise test_random
    test_range test_reprlib test_richcmp test_scope test_set test_setcomps test_slice test_sort
    test_statistics test_string test_string_literals test_struct test_subclassinit test_super
    test_textwrap test_threading_local test_tuple test_type_annotations test_typechecks test_types
    test_typing test_unary test_unpack test_unpack_ex test_userdict test_userlist test_userstring
    test_warnings test_weakref test_weakset test_with test_yield_from
""".split()
