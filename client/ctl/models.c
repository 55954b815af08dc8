/*
 * models.c - coppicectl models: shapes and pages of what is open, and where its KV lies when there
 * are several devices.
 */
#include "models.h"

#include "listing.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *dtype_name(uint32_t dtype)
{
	static const char *const names[] = {"fp32", "fp16", "bf16"};

	return dtype < sizeof(names) / sizeof(*names) ? names[dtype] : "?";
}

static void print_shape(const Coppice__Model *m)
{
	char name[TEXT_QUOTED_BYTES];

	printf("\"%s\"  %" PRIu32 " layers, %" PRIu32 "/%" PRIu32 " heads of %" PRIu32
	       ", %s, pages of %" PRIu32 " tokens and %s, %" PRIu32 " sessions\n",
	       text_quoted(name, sizeof(name), m->name), m->n_layers, m->n_q_heads, m->n_kv_heads,
	       m->head_dim, dtype_name(m->dtype), m->page_tokens, text_bytes(m->page_bytes).s,
	       m->n_sessions);
}

static void print_split(const Coppice__Model *m)
{
	char why[TEXT_QUOTED_BYTES];

	text_quoted(why, sizeof(why), m->split_why);
	if (strcmp(m->split, "home") == 0)
		printf("  KV on one of %" PRIu32 " devices: %s\n", m->n_devices, why);
	else
		printf("  KV on %" PRIu32 " devices by %s: %s\n", m->n_devices, m->split, why);
}

static void print_model(const Coppice__Model *m)
{
	print_shape(m);
	if (m->has_all_kv_heads)
		printf("  KV heads %" PRIu32 " to %" PRIu32 " of %" PRIu32 "\n", m->first_kv_head,
		       m->first_kv_head + m->n_kv_heads - 1, m->all_kv_heads);
	if (m->n_devices > 1)
		print_split(m);
}

int models_run(struct ctl *ctl)
{
	LISTING models = {0};
	int r = listing_read(&ctl->call, "models", &models);

	if (r < 0)
		return r;
	if (ctl->options.json)
		return listing_print_json(&ctl->call, &models, "models");
	for (size_t i = 0; i < models.n; i++)
		print_model((const Coppice__Model *)models.items[i]);
	if (models.n == 0)
		puts("no models");
	return 0;
}
