/*
 * launch.c - launches, one by one and as graphs; see launch.h. A chain's graph is the one kept
 * whose kernels are the same in the same order: it gets new arguments, or else takes the place of
 * the one that was used longest ago. Where the driver refuses a graph, the launches go one by one
 * from then on, and say themselves what is wrong.
 */
#include "launch.h"

#include <cuda_runtime_api.h>
#include <string.h>

/* ---- one ------------------------------------------------------------------------------------ */

static int start(const struct launch *l, cudaStream_t stream)
{
	cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
	cudaLaunchConfig_t config = {
		.gridDim = {l->n_blocks, 1, 1},
		.blockDim = {l->block_threads, 1, 1},
		.dynamicSmemBytes = l->shared_bytes,
		.stream = stream,
		.attrs = &attribute,
		.numAttrs = l->early ? 1 : 0,
	};
	void *arguments[] = {(void *)(uintptr_t)l->argument};

	attribute.val.programmaticStreamSerializationAllowed = 1;
	return cudaLaunchKernelExC(&config, l->kernel, arguments);
}

/* ---- a graph of several --------------------------------------------------------------------- */

static struct cudaKernelNodeParams node_params(const struct launch *l, void **arguments)
{
	arguments[0] = (void *)(uintptr_t)l->argument;
	return (struct cudaKernelNodeParams){
		.func = (void *)(uintptr_t)l->kernel,
		.gridDim = {l->n_blocks, 1, 1},
		.blockDim = {l->block_threads, 1, 1},
		.sharedMemBytes = l->shared_bytes,
		.kernelParams = arguments,
	};
}

static cudaError_t add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to, bool early)
{
	cudaGraphEdgeData edge = {0};

	if (early) {
		edge.from_port = cudaGraphKernelNodePortProgrammatic;
		edge.type = cudaGraphDependencyTypeProgrammatic;
	}
#if CUDART_VERSION >= 13000
	return cudaGraphAddDependencies(graph, &from, &to, &edge, 1);
#else
	return cudaGraphAddDependencies_v2(graph, &from, &to, &edge, 1);
#endif
}

static cudaError_t add_nodes(const struct launch_chain *chain, cudaGraph_t graph, void **ret)
{
	cudaGraphNode_t last = NULL;
	cudaError_t r = cudaSuccess;

	for (uint32_t i = 0; i < chain->n && r == cudaSuccess; i++) {
		const struct launch *l = &chain->launches[i];
		cudaGraphNode_t node;
		void *arguments[1];
		struct cudaKernelNodeParams params = node_params(l, arguments);

		r = cudaGraphAddKernelNode(&node, graph, NULL, 0, &params);
		if (r == cudaSuccess && i > 0)
			r = add_edge(graph, last, node, l->early);
		ret[i] = last = node;
	}
	return r;
}

static bool graph_fits(const struct launch_graph *g, const struct launch_chain *chain)
{
	if (!g->replay || g->n != chain->n)
		return false;
	for (uint32_t i = 0; i < g->n; i++) {
		if (g->kernels[i] != chain->launches[i].kernel ||
		    g->early[i] != (bool)chain->launches[i].early)
			return false;
	}
	return true;
}

/* The chain's graph, or the one that was used longest ago. */
static struct launch_graph *find_graph(struct launch_chain *chain)
{
	struct launch_graph *oldest = &chain->graphs[0];

	for (uint32_t i = 0; i < LAUNCH_GRAPHS; i++) {
		if (graph_fits(&chain->graphs[i], chain))
			return &chain->graphs[i];
		if (chain->graphs[i].used < oldest->used)
			oldest = &chain->graphs[i];
	}
	return oldest;
}

/* One that is still running is destroyed when it has ended. */
static void graph_done(struct launch_graph *g)
{
	if (g->replay)
		cudaGraphExecDestroy(g->replay);
	if (g->graph)
		cudaGraphDestroy(g->graph);
	*g = (struct launch_graph){0};
}

static cudaError_t graph_make(struct launch_graph *g, const struct launch_chain *chain)
{
	cudaError_t r;

	graph_done(g);
	r = cudaGraphCreate((cudaGraph_t *)&g->graph, 0);
	if (r == cudaSuccess)
		r = add_nodes(chain, g->graph, g->nodes);
	if (r == cudaSuccess)
		r = cudaGraphInstantiate((cudaGraphExec_t *)&g->replay, g->graph, 0);
	if (r != cudaSuccess)
		return r;
	g->n = chain->n;
	for (uint32_t i = 0; i < g->n; i++) {
		g->kernels[i] = chain->launches[i].kernel;
		g->early[i] = chain->launches[i].early;
	}
	return cudaSuccess;
}

static cudaError_t graph_set(struct launch_graph *g, const struct launch_chain *chain)
{
	cudaError_t r = cudaSuccess;

	for (uint32_t i = 0; i < g->n && r == cudaSuccess; i++) {
		void *arguments[1];
		struct cudaKernelNodeParams params = node_params(&chain->launches[i], arguments);

		r = cudaGraphExecKernelNodeSetParams(g->replay, g->nodes[i], &params);
	}
	return r;
}

static cudaError_t go_together(struct launch_chain *chain, cudaStream_t stream)
{
	struct launch_graph *g = find_graph(chain);
	cudaError_t r = graph_fits(g, chain) ? graph_set(g, chain) : graph_make(g, chain);

	if (r != cudaSuccess)
		return r;
	g->used = ++chain->uses;
	return cudaGraphLaunch(g->replay, stream);
}

static int go_apart(struct launch_chain *chain, cudaStream_t stream)
{
	int r = cudaSuccess;

	for (uint32_t i = 0; i < chain->n && r == cudaSuccess; i++)
		r = start(&chain->launches[i], stream);
	return r;
}

/* ---- chains --------------------------------------------------------------------------------- */

int launch_chain_go(struct launch_chain *chain, struct CUstream_st *stream)
{
	int r = cudaSuccess;

	if (!chain->apart && chain->n > 0 && go_together(chain, stream) != cudaSuccess) {
		cudaGetLastError();
		chain->apart = true; /* what is wrong with the launches themselves shows again */
	}
	if (chain->apart)
		r = go_apart(chain, stream);
	chain->n = 0;
	return r;
}

void launch_chain_done(struct launch_chain *chain)
{
	for (uint32_t i = 0; i < LAUNCH_GRAPHS; i++)
		graph_done(&chain->graphs[i]);
}

void launch_chain_begin(struct launch_chain *chain)
{
	chain->n = 0;
}

int launch_put(const struct launch *l, struct launch_to to)
{
	struct launch_chain *chain = to.recorded;
	int r = cudaSuccess;

	if (!chain)
		return start(l, to.stream);
	if (chain->n == LAUNCH_CHAIN)
		r = launch_chain_go(chain, to.stream);
	memcpy(chain->arguments[chain->n], l->argument, l->argument_bytes);
	chain->launches[chain->n] = *l;
	chain->launches[chain->n].argument = chain->arguments[chain->n];
	chain->n++;
	return r;
}
