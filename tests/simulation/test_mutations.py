"""The simulation bites: with a rule taken away, some seed breaks a promise. `python -m tests.simulation.mutations` hunts them all."""

from __future__ import annotations

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation, hunt
from tests.simulation.runs import simulate

SLOW = {
    *("claim_without_status", "claim_without_inputs", "count_only_versions", "look_that_settles_what_it_did_not_see"),
    *("taken_over_while_an_input_is_open", "notice_fails_a_healthy_step", "end_expects_status_alone"),
    *("claim_of_a_held_step", "rechecked_again_and_again", "recheck_looks_at_nobody_else"),
    *("retraction_without_the_status", "commands_that_mean_whatever_is_there_by_now"),
}
"""Found after hundreds of seeds: left to the command."""
QUICK = [mutation for mutation in MUTATIONS if mutation.name not in SLOW]


@pytest.mark.parametrize("mutation", QUICK, ids=lambda mutation: mutation.name)
def test_the_simulation_finds(mutation: Mutation) -> None:
    found = hunt(mutation)
    assert found.seed is not None, f"{mutation.name} got away in {found.tried} seeds"
    assert simulate(found.seed, mutation.wanted).violations == (), "the seed breaks a promise without the mutation too"


def test_every_name_is_there_once() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len(set(names)) and set(names) >= SLOW
