"""Cases written as steps: each names an operation, binds a result, and the last one is held against what is expected.

`run` carries out a case on a `world` of bound names and a clock that stands still; `operations` says what each
operation does with the public API, `pipelines` and `workspaces` what those of their subjects do; a case about
workspaces has a folder of its own (`places`) and resources by kind (`resource_kinds`); `paths` reads and assigns
through dotted names; `matchers` compares.

An operation that is not in `operations.OPERATIONS` makes its case fail, and the report says so. Further ones go into a
file of their own, whose table is joined to that one.
"""
