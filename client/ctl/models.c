/* models.c - see models.h. */
#include "models.h"

#include "json.h"
#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *dtype_name(uint32_t dtype)
{
	static const char *const names[] = {"fp32", "fp16", "bf16"};

	return dtype < sizeof(names) / sizeof(*names) ? names[dtype] : "?";
}

static void print_model(const Coppice__Model *m)
{
	char name[TEXT_QUOTED_BYTES], why[TEXT_QUOTED_BYTES];

	printf("\"%s\"  %" PRIu32 " layers, %" PRIu32 "/%" PRIu32 " heads of %" PRIu32
	       ", %s, pages of %" PRIu32 " tokens and %s, %" PRIu32 " sessions\n",
	       text_quoted(name, sizeof(name), m->name), m->n_layers, m->n_q_heads, m->n_kv_heads,
	       m->head_dim, dtype_name(m->dtype), m->page_tokens, text_bytes(m->page_bytes).s,
	       m->n_sessions);
	if (m->has_all_kv_heads)
		printf("  KV heads %" PRIu32 " to %" PRIu32 " of %" PRIu32 "\n", m->first_kv_head,
		       m->first_kv_head + m->n_kv_heads - 1, m->all_kv_heads);
	if (m->n_devices > 1 && !strcmp(m->split, "home"))
		printf("  KV on one of %" PRIu32 " devices: %s\n", m->n_devices,
		       text_quoted(why, sizeof(why), m->split_why));
	else if (m->n_devices > 1)
		printf("  KV on %" PRIu32 " devices by %s: %s\n", m->n_devices, m->split,
		       text_quoted(why, sizeof(why), m->split_why));
}

static void take_models(const struct ctl *ctl, const Coppice__ModelsReply *reply, json_t *array)
{
	for (size_t i = 0; i < reply->n_model; i++) {
		if (ctl->options.json)
			json_array_append_new(array, json_message(&reply->model[i]->base));
		else
			print_model(reply->model[i]);
	}
}

static int ask_models(struct ctl *ctl, json_t *array)
{
	Coppice__Models ask = COPPICE__MODELS__INIT;

	do {
		Coppice__Request request = COPPICE__REQUEST__INIT;
		CALL_REPLY reply = NULL;
		int r;

		request.models = &ask;
		r = call_ask(&ctl->call, &request, &reply);
		if (r < 0)
			return r;
		if (!reply->models)
			return call_fail(&ctl->call, -EPROTO, "models",
					 "coppiced's reply lacks its models");
		take_models(ctl, reply->models, array);
		ask.has_cursor = 1;
		ask.cursor = reply->models->cursor;
	} while (ask.cursor != 0);
	return 0;
}

int models_run(struct ctl *ctl)
{
	json_t *array = json_array();
	int r = ask_models(ctl, array);

	if (r == 0 && ctl->options.json)
		return json_print(json_pack("{s:o}", "models", array));
	json_decref(array);
	return r;
}
