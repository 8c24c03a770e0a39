"""Rows of a service that refuses now and then, in two kernels: ``python -m tests.rows.labelled`` has 2,000."""

from tests.rows.labelled import A_SECOND, labelled


def test_refusals_are_waited_for_and_a_new_kernel_goes_on_from_the_same_cell(tmp_path):
    found, asked = labelled(tmp_path, 120)
    assert found == [120, 0]
    assert asked.refused > 20
    assert len(asked.paid) - len(set(asked.paid)) <= A_SECOND
