/*
 * tree.c - the verb tree: nodes of the cache, a page at a time.
 *
 * A page goes out as one packet, whatever its nodes are called: the number of nodes on it is such
 * that the longest fit.
 */
#include "daemon/sched/verbs/beside.h"
#include "daemon/sched/verbs/scheduler.h"
#include "daemon/session/begin.h"
#include "daemon/session/reply.h"
#include "verbs.h"

#include <string.h>

#define TREE_PAGE 224u

/* A page: what is asked and what is answered. */
struct tree_page {
	uint64_t cursor;
	uint32_t n;
	struct store_node_info nodes[TREE_PAGE];
	char models[TREE_PAGE][128]; /* the nodes' models; the store's may go */
};

static void tree_node(Coppice__TreeNode *to, struct store_node_info *from)
{
	coppice__tree_node__init(to);
	to->id = from->id;
	to->parent = from->parent_id;
	to->model = (char *)from->model;
	to->domain = from->domain;
	to->salt = from->salt;
	to->depth = from->depth;
	to->pos = from->pos;
	to->n_tokens = from->n_tokens;
	to->n_pages = from->n_pages;
	to->n_users = from->n_users;
	to->hits = from->hits;
	to->head = from->head;
	to->n_head = from->n_head;
	to->has_n_pages_host = to->has_n_pages_file = to->has_n_pages_backed = 1;
	to->n_pages_host = from->n_pages_in[STORE_HOST];
	to->n_pages_file = from->n_pages_in[STORE_FILE];
	to->n_pages_backed = from->n_pages_backed;
}

/* A node takes at most 272 bytes (a name of 127, a domain of 32 bits, everything else at its
 * widest), so that TREE_PAGE of them always fit a message. */
static void tree_answer(struct request *request)
{
	struct tree_page *page = request->sched.room;
	Coppice__Reply reply = reply_to(request);
	Coppice__TreeReply tree = COPPICE__TREE_REPLY__INIT;
	Coppice__TreeNode nodes[TREE_PAGE], *pointers[TREE_PAGE];

	if (reply_failed(request))
		return;
	for (uint32_t i = 0; i < page->n; i++) {
		tree_node(&nodes[i], &page->nodes[i]);
		pointers[i] = &nodes[i];
	}
	tree.n_node = page->n;
	tree.cursor = tree.n_node < TREE_PAGE ? 0 : page->cursor;
	tree.node = pointers;
	reply.tree = &tree;
	reply_send(request->session, &reply);
}

static void tree_begin(struct session *s, uint64_t id, const void *message)
{
	const Coppice__Tree *m = message;
	struct request *request = request_begin(s, id, &verb_tree, sizeof(struct tree_page));
	struct tree_page *page;

	if (!request)
		return;
	page = request->sched.room;
	page->cursor = m->cursor;
	request_post(request);
}

static int tree_serve(struct sched *s, struct sched_request *rq)
{
	uint64_t domain = rq->privileged || !rq->session ? UINT64_MAX : rq->session->domain;
	struct tree_page *page = rq->room;

	page->n = store_walk(s->core.store, domain, &page->cursor, page->nodes, TREE_PAGE);
	if (!page->n)
		page->cursor = 0;
	for (uint32_t i = 0; i < page->n; i++) {
		strcpy(page->models[i], page->nodes[i].model);
		page->nodes[i].model = page->models[i];
	}
	return 0;
}

const struct verb verb_tree = {.begin = tree_begin,
			       .serve = tree_serve,
			       .large = true,
			       .beside = beside_pass,
			       .answer = tree_answer};
