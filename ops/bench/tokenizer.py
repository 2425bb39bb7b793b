"""A real tokenizer whose vocabulary comes with its package, so that nothing is fetched: Mistral's Tekken. Of the extra `bench` alone."""

from __future__ import annotations

from importlib.metadata import version

from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

_TEKKEN = MistralTokenizer.v3(is_tekken=True).instruct_tokenizer.tokenizer

NAME = f"Mistral's Tekken (mistral-common {version('mistral-common')})"


def count(text: str) -> int:
    """Return the number of a text's tokens."""
    return len(_TEKKEN.encode(text, bos=False, eos=False))
