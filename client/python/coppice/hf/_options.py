"""What a layer asks of its attention by name. What is not known here is refused by that name."""

from __future__ import annotations

from typing import Any

from ._errors import invalid, unsupported
from ._shape import Shape

# Looked at by check_options, or by attention itself.
TAKEN = {"scaling", "dropout", "softcap", "sliding_window", "s_aux", "is_causal"}
TAKEN |= {"output_attentions"}
# Which do not change what attention computes, and why. None is an option that is not there.
HARMLESS = {
    "position_ids": "_fed.py has checked them; the layer has turned q and k by them",
    "cache_position": "the same, in another form",
    "position_embeddings": "the layer has turned q and k by them",
    "past_key_values": "the layer has given it k and v",
    "use_cache": "of the pass",
    "return_dict": "of what the pass gives back",
    "output_hidden_states": "of what the pass gives back",
    "output_router_logits": "of what the pass gives back",
    "logits_to_keep": "of what the pass gives back",
    "labels": "of the loss",
    "num_items_in_batch": "of the loss",
    "input_ids": "of embeddings and experts",
    "token_type_ids": "of embeddings, and of the mask where the model has made one",
    "mm_token_type_ids": "the same",
    "deterministic": "of gradients",
}
KNOWN = frozenset(TAKEN | HARMLESS.keys())


def check_options(shape: Shape, options: dict[str, Any], n_columns: int) -> None:
    """But for the window."""
    if not KNOWN.issuperset(options):
        check_unknown(options)
    if options.get("softcap") is not None:
        raise unsupported(f"softcap is {options['softcap']}: the daemon caps no scores")
    if options.get("dropout"):
        raise invalid("there is no dropout: call model.eval()")
    scale = options.get("scaling")
    if scale is not None and abs(scale - shape.scale) > 1e-6 * abs(shape.scale):
        raise unsupported(f"scaling is {scale}, the model was attached with {shape.scale}")
    if options.get("output_attentions"):
        raise unsupported("output_attentions: weights of attention never leave the daemon")
    if options.get("is_causal") is False and n_columns > 1:  # a last token sees all in any case
        raise unsupported("is_causal is False: the daemon's attention is causal")


def check_unknown(options: dict[str, Any]) -> None:
    for name in options.keys() - KNOWN:
        if options[name] is not None:
            raise unsupported(
                f"{name}: a layer gives its attention this option, which the daemon does not know "
                "and which may change the result: leave it out, or use the model without attach"
            )
