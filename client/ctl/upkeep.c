/*
 * upkeep.c - coppicectl evict and drain: for root and the daemon's own user alone.
 */
#include "upkeep.h"

#include "json.h"
#include "text.h"

#include <stdio.h>

int upkeep_evict(struct ctl *ctl)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Evict evict = COPPICE__EVICT__INIT;
	CALL_REPLY reply = NULL;
	int r;

	evict.model = (char *)ctl->options.model;
	evict.n_pages = ctl->options.n_pages;
	evict.has_pinned = evict.pinned = ctl->options.pinned;
	request.evict = &evict;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (!reply->evict)
		return call_fail_missing(&ctl->call, "evict");
	if (ctl->options.json)
		return json_print(&ctl->call, json_message(&reply->evict->base));
	printf("%s pages evicted\n", text_count(reply->evict->n_pages).s);
	if (reply->evict->n_pins > 0)
		printf("%s pins ended for it\n", text_count(reply->evict->n_pins).s);
	return 0;
}

int upkeep_drain(struct ctl *ctl)
{
	Coppice__Request request = COPPICE__REQUEST__INIT;
	Coppice__Drain drain = COPPICE__DRAIN__INIT;
	CALL_REPLY reply = NULL;
	int r;

	drain.has_off = 1;
	drain.off = ctl->options.off;
	request.drain = &drain;
	r = call_ask(&ctl->call, &request, &reply);
	if (r < 0)
		return r;
	if (ctl->options.json)
		return json_print(&ctl->call, json_pack("{s:b}", "draining", !drain.off));
	puts(drain.off ? "coppiced takes new work again"
		       : "coppiced is draining: what runs may end, nothing new begins");
	return 0;
}
