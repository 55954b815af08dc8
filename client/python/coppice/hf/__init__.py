"""Models of transformers, unpatched, with their KV at the daemon: shared by many processes.

    with coppice.connect() as connection, coppice.hf.attach(model, connection) as shared:
        with shared.cache(input_ids) as cache:
            model.generate(input_ids, past_key_values=cache)

Importing this registers attn_implementation="coppice" with transformers, which it needs, as torch.
Where tokens are cached, a pass is not fed with them, or has logits of no use for them.
"""

from .._needs import need

need("torch transformers", "torch", "transformers")

from transformers import AttentionInterface, AttentionMaskInterface

from ._cache import Cache
from ._capture import Capturing, capture
from ._forward import attention
from ._mask import mask
from ._share import share_weights
from ._shared import NAME, SharedKV, attach

AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, mask)

__all__ = ["Cache", "Capturing", "SharedKV", "attach", "attention", "capture", "share_weights"]
