/*
 * ctl_tiers_test.c - coppicectl against a daemon with host memory below its pool: where KV lies,
 * and what came from where.
 */
#include "ctl_ask.h"
#include "proto/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_BYTES 16384 /* of host memory */

/* The line of node id in a drawing, up to where its pages are. */
static const char *line_of(const char *drawing, json_int_t id)
{
	const char *line = strchr(drawing, '\n');

	while (line && strtol(line + 1, NULL, 10) != id)
		line = strchr(line + 1, '\n');
	assert_non_null(line);
	return line + 1;
}

/* The columns of a node: its number, tokens, pages, and where these are. */
static void assert_drawn(const char *drawing, json_t *node, const char *where)
{
	int id, n_tokens, n_pages;
	char next[24];

	assert_int_equal(sscanf(line_of(drawing, integer(node, "id")), "%d %d %d %23s", &id,
				&n_tokens, &n_pages, next),
			 4);
	assert_int_equal(n_tokens, integer(node, "n_tokens"));
	assert_int_equal(n_pages, integer(node, "n_pages"));
	/* Where all is in the pool, its users come next. */
	if (where[0])
		assert_string_equal(next, where);
	else
		assert_int_equal(strspn(next, "0123456789"), strlen(next));
}

/* The node whose run begins with byte has so many pages in host memory, and is drawn so. */
static void assert_in_host(struct ctl_fixture *f, char byte, json_int_t n_pages, json_int_t n_host)
{
	json_int_t id = find_node(f, byte);
	json_t *object = ASK(f, 0, "tree"), *node;
	char where[24] = "";
	struct ctl_answer a;
	size_t i;

	assert_true(id > 0);
	RUN(f, &a, "tree");
	assert_says(a.out, "pages where users ");
	if (n_host > 0)
		snprintf(where, sizeof(where), "%dh", (int)n_host);
	json_array_foreach(json_object_get(object, "nodes"), i, node)
	{
		if (integer(node, "id") != id)
			continue;
		assert_int_equal(integer(node, "n_pages"), n_pages);
		assert_int_equal(integer(node, "n_pages_host"), n_host);
		assert_int_equal(integer(node, "n_pages_file"), 0);
		assert_int_equal(integer(node, "n_pages_backed"), 0);
		assert_drawn(a.out, node, where);
	}
	json_decref(object);
}

/* Copies end on their own. */
static void await_copies(struct ctl_fixture *f)
{
	json_int_t n_moves = 1;

	for (int i = 0; i < 1000 && n_moves > 0; i++) {
		json_t *object = ASK(f, 0, "status");
		n_moves = integer(object, "tier_moves");
		json_decref(object);
	}
	assert_int_equal(n_moves, 0);
}

/* Bytes of a page of the one model. */
static json_int_t page_bytes(struct ctl_fixture *f)
{
	json_t *object = ASK(f, 0, "models");
	json_int_t bytes =
		integer(json_array_get(json_object_get(object, "models"), 0), "page_bytes");

	json_decref(object);
	return bytes;
}

/* What the status says of host memory: pages there, matched there, that came and that went. Returns
 * how long was waited. */
static json_int_t assert_host(struct ctl_fixture *f, int used, int hits, int in, int out)
{
	json_t *object = ASK(f, 0, "status");
	const json_t *tiers = json_object_get(object, "tier");
	json_t *host = json_array_get(tiers, 0);
	json_int_t bytes = page_bytes(f), waited_ns;
	char hit[64];
	struct ctl_answer a;

	assert_int_equal(json_array_size(tiers), 1);
	assert_string_equal(json_string_value(json_object_get(host, "name")), "host");
	assert_int_equal(integer(host, "capacity_bytes"), 64 << 20);
	assert_int_equal(integer(host, "used_bytes"),
			 used * ((bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES));
	assert_int_equal(integer(host, "hits"), hits);
	assert_int_equal(integer(host, "bytes_in"), in * bytes);
	assert_int_equal(integer(host, "bytes_out"), out * bytes);
	waited_ns = integer(host, "waited_ns");
	json_decref(object);
	RUN(f, &a, "status");
	snprintf(hit, sizeof(hit), " of 64.0 MiB; %d pages found here, ", hits);
	assert_says(a.out, hit);
	assert_says(a.out, waited_ns > 0 ? "s waited\n" : " 0.0 us waited\n");
	return waited_ns;
}

static void test_what_lies_in_host_memory_is_shown_and_counted(void **state)
{
	struct ctl_fixture *f = *state;
	uint64_t begin_ns;
	json_int_t waited_ns;

	assert_int_equal(assert_host(f, 0, 0, 0, 0), 0);
	ctl_fixture_close_seqs(f);
	json_decref(ASK(f, 0, "evict"));
	await_copies(f);
	assert_in_host(f, 'I', 2, 2);
	assert_in_host(f, 'G', 2, 2);
	assert_in_host(f, 'w', 1, 1);
	assert_int_equal(assert_host(f, 5, 0, 5, 0), 0);

	begin_ns = clock_now_ns();
	assert_int_equal(ctl_fixture_reopen(f, 0), strlen(CTL_TRUNK CTL_FIRST) - 1);
	await_copies(f);
	waited_ns = assert_host(f, 1, 4, 5, 4);
	assert_in_range(waited_ns, 1, clock_now_ns() - begin_ns);
	assert_in_host(f, 'w', 1, 1);
	assert_in_host(f, 'I', 2, 0);
	assert_in_host(f, 'G', 2, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_lies_in_host_memory_is_shown_and_counted,
						ctl_fixture_new_host, ctl_fixture_free),
	};

	return cmocka_run_group_tests_name("coppicectl and tiers", tests, NULL, NULL);
}
