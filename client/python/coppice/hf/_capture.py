"""Decoding by CUDA graphs: a pass of one token a row is one launch, in place of its kernels'.

A graph is of one number of rows, and belongs to a workspace. What it reads lies where it lay when
it was captured: ids and positions in tensors of its own, Q, K, V and O in an arena of its own. Of
which sequences its steps are is said with each launch.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from transformers.modeling_outputs import CausalLMOutputWithPast

from .._coppice import Capture
from ._batch import Batch
from ._cache import Cache
from ._errors import invalid, unsupported
from ._forward import Forward, Layout
from ._fuse import Fused
from ._mask import Window
from ._workspace import Rows, Workspace

if TYPE_CHECKING:
    from typing_extensions import Self

LANE_WORDS = 1024  # of a lane, one for each layer of each graph
# What a graph takes the place of; anything else that is given must say nothing.
TAKEN_KEYS = {"input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache"}
TAKEN_KEYS |= {"logits_to_keep"}
CONFIG_KEYS = ("output_hidden_states", "output_attentions", "output_router_logits")


class Recording(Forward):
    """A pass that is captured: its steps wait for a launch each."""

    def __init__(self, workspace: Workspace, like: Forward, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self.window: Window | None = None  # the narrowest of its layers
        self.n_tokens_most: int | None = None  # by windows of masks, which may be no layer's
        self.capture = Capture(workspace.lane, stream)
        layout = Layout(like.layout.rows, list(like.news.values()), 1)
        memory = Rows(workspace.connection, workspace.shape, workspace.device, layout.n)
        super().__init__(workspace, layout, memory)
        self.n_tokens = like.n_tokens

    def step(self, layer: int) -> None:
        self.capture.step(layer, self.parts, self.stream)
        self.capture.wait(self.stream)

    def check_window(self, window: Window) -> None:
        super().check_window(window)
        if not self.window or window.n_tokens < self.window.n_tokens:
            self.window = window

    def is_within(self, n_tokens: int) -> bool:
        if not super().is_within(n_tokens):
            return False
        self.n_tokens_most = min(n_tokens, self.n_tokens_most or n_tokens)
        return True

    def _results(self, rows: torch.Tensor, computed: torch.Tensor) -> torch.Tensor:
        """Read before the next layer's are written."""
        return computed

    def finish(self) -> None:
        """Nothing has run."""

    def close(self) -> None:
        self.capture.close()
        self.memory.arena.close()


class Graph:
    """forward: the model's own. The cache's pass has begun."""

    def __init__(self, forward: Any, cache: Cache, batch: Batch, positions: torch.Tensor) -> None:
        begun, workspace = batch.forward, batch.opened()
        assert begun
        stream = torch.cuda.Stream(workspace.device)
        self.ids = torch.zeros((len(batch.rows), 1), dtype=torch.int64, device=workspace.device)
        self.positions = positions.expand(self.ids.shape).clone()
        self.recording = Recording(workspace, begun, stream)
        self.graph = torch.cuda.CUDAGraph()
        batch.forward = self.recording
        stream.wait_stream(torch.cuda.current_stream(workspace.device))
        try:
            with torch.cuda.graph(
                self.graph, workspace.pool, stream, capture_error_mode="thread_local"
            ):
                out = forward(
                    input_ids=self.ids,
                    position_ids=self.positions,
                    past_key_values=cache,
                    use_cache=True,
                )
        except RuntimeError as error:
            self.close()
            raise unsupported(f"the model's pass cannot be captured in a graph: {error}") from error
        except BaseException:
            self.close()
            raise
        finally:
            batch.forward = begun
        self.logits = out.logits

    def is_for(self, begun: Forward) -> bool:
        """A longer text has other masks: then the layers are asked anew whether they have them."""
        most = self.recording.n_tokens_most
        return most is None or begun.n_tokens <= most

    def replay(self, begun: Forward, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if self.recording.window:
            begun.check_window(self.recording.window)
        self.ids.copy_(ids)
        self.positions.copy_(positions)
        seqs = [row.seq for row in begun.layout.spans]
        begun.workspace.submit(lambda: self.recording.capture.submit(seqs))
        self.graph.replay()
        begun.finish()
        return self.logits.clone()

    def close(self) -> None:
        """Launches are over."""
        torch.cuda.synchronize(self.ids.device)
        self.graph.reset()
        self.recording.close()


def is_said(value: Any) -> bool:
    return value is not None and value is not False


def is_more_wanted(config: Any) -> bool:
    """Than logits, by a pass that is not told otherwise; or in another form."""
    more = (getattr(config, key, None) for key in CONFIG_KEYS)
    return any(map(is_said, more)) or getattr(config, "return_dict", True) is False


def check_device(model: Any) -> None:
    if torch.device(model.device).type != "cuda":
        raise invalid(f"the model is on {model.device}: graphs are a CUDA GPU's")


class Capturing:
    """Made by capture."""

    def __init__(self, model: Any, fuse: bool) -> None:
        check_device(model)
        self._model: Any = model
        self._fused = Fused(model) if fuse else None
        self._forward = model.forward
        self._former = model.__dict__.get("forward")
        self._warm: set[int] = set()  # numbers of rows whose kernels have run
        self._workspaces: weakref.WeakSet[Workspace] = weakref.WeakSet()

        @functools.wraps(self._forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            named = {"input_ids": args[0], **kwargs} if len(args) == 1 else kwargs
            if len(args) > 1 or not self._takes(named):
                return self._forward(*args, **kwargs)
            return self._decode(named["past_key_values"], named)

        model.forward = forward

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The model's passes are as before; graphs are gone."""
        model, self._model = self._model, None
        if model is None:
            return
        del model.forward
        if self._former is not None:
            model.forward = self._former
        for workspace in list(self._workspaces):
            workspace.drop_graphs()

    def _takes(self, kwargs: dict[str, Any]) -> bool:
        """A pass of one token a row, by a cache of the daemon's."""
        cache, ids = kwargs.get("past_key_values"), kwargs.get("input_ids")
        if not isinstance(cache, Cache) or not cache.shared.is_of(self._model):
            return False
        if is_more_wanted(self._model.config):
            return False
        if ids is None or ids.ndim != 2 or ids.shape[1] != 1 or torch.is_grad_enabled():
            return False
        others = {key: value for key, value in kwargs.items() if key not in TAKEN_KEYS}
        return_dict = others.pop("return_dict", True)
        return return_dict is not False and not any(map(is_said, others.values()))

    def _decode(self, cache: Cache, kwargs: dict[str, Any]) -> Any:
        batch = cache.begin(kwargs)
        begun = batch.forward
        assert begun
        with cache.shared.begun():
            if not self._is_ready(begun, len(batch.rows)):
                return self._run(**kwargs)
            places = kwargs.get("position_ids")
            if places is None:
                places = torch.tensor([[row.n_tokens] for row in batch.rows])
            graph = self._graph(cache, batch, begun, places.to(batch.opened().device))
            logits = graph.replay(begun, kwargs["input_ids"], places)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _run(self, **kwargs: Any) -> Any:
        """A pass of one token a row, as it is captured."""
        with self._fused.applied() if self._fused else contextlib.nullcontext():
            return self._forward(**kwargs)

    def _is_ready(self, begun: Forward, n_rows: int) -> bool:
        """Rows that are one sequence still, beams, make no graph, nor does a pass in which a row's
        token is padding or there already; nor does a first one."""
        if begun.layout.n != n_rows:
            return False
        was_warm = n_rows in self._warm
        self._warm.add(n_rows)
        return was_warm

    def _graph(
        self, cache: Cache, batch: Batch, begun: Forward, places: torch.Tensor
    ) -> Graph:
        workspace, n_rows = batch.opened(), len(batch.rows)
        self._workspaces.add(workspace)
        graph: Graph | None = workspace.graphs.get(n_rows)
        if graph and not graph.is_for(begun):
            workspace.graphs.pop(n_rows).close()
            graph = None
        if graph is None:
            workspace.make_room(LANE_WORDS // workspace.shape.n_layers)
            graph = workspace.graphs[n_rows] = Graph(self._run, cache, batch, places)
        return graph


def capture(model: Any, *, fuse: bool = True) -> Capturing:
    """Runs passes of one token a row by CUDA graphs, until Capturing.close.

    model: that was attached, on a GPU. The first pass of a number of rows runs as ever, the second
    one is captured, and those that follow are launched. Capture anew after weights, an adapter or
    the type have changed. fuse: their norms and rotary embeddings are compiled by torch.compile,
    which takes some seconds the first time; where torch finds no compiler it warns, and goes on
    without.
    """
    return Capturing(model, fuse)
