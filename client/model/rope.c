/*
 * rope.c - keys and formulas of transformers' modeling_rope_utils, in double.
 *
 * config.json has them at its top (transformers 4: rope_theta, rope_scaling) or in an object
 * (transformers 5: rope_parameters). Which of longrope's two lists is taken is decided once: the
 * short one where the positions that are used end with the original ones, the long one where they
 * go beyond.
 */
#include "rope.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Where a config speaks of it. */
struct rope_keys {
	struct reading top; /* config.json */
	struct reading inner; /* rope_scaling or rope_parameters */
	const struct family *family;
	const struct rope_shape *shape;
};

static const char *const kind_names[] = {
	[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear",	  [ROPE_LLAMA3] = "llama3",
	[ROPE_YARN] = "yarn",	    [ROPE_LONGROPE] = "longrope",
};
#define N_KINDS (sizeof(kind_names) / sizeof(kind_names[0]))

const char *rope_kind_name(enum rope_kind kind)
{
	return kind_names[kind];
}

#define OF(kind) (1u << (kind))
#define STRETCHED (OF(ROPE_LLAMA3) | OF(ROPE_YARN) | OF(ROPE_LONGROPE))

/* What may stand in rope_scaling and rope_parameters. */
static const struct {
	const char *name;
	uint32_t kinds;
} inner_keys[] = {
	{"rope_type", UINT32_MAX},
	{"type", UINT32_MAX},
	{"rope_theta", UINT32_MAX},
	{"partial_rotary_factor", UINT32_MAX},
	{"original_max_position_embeddings", UINT32_MAX},
	{"factor", OF(ROPE_LINEAR) | STRETCHED},
	{"low_freq_factor", OF(ROPE_LLAMA3)},
	{"high_freq_factor", OF(ROPE_LLAMA3)},
	{"attention_factor", OF(ROPE_YARN) | OF(ROPE_LONGROPE)},
	{"beta_fast", OF(ROPE_YARN)},
	{"beta_slow", OF(ROPE_YARN)},
	{"mscale", OF(ROPE_YARN)},
	{"mscale_all_dim", OF(ROPE_YARN)},
	{"truncate", OF(ROPE_YARN)},
	{"short_factor", OF(ROPE_LONGROPE)},
	{"long_factor", OF(ROPE_LONGROPE)},
};

static bool may_have(enum rope_kind kind, const char *name)
{
	for (size_t i = 0; i < sizeof(inner_keys) / sizeof(inner_keys[0]); i++)
		if (!strcmp(inner_keys[i].name, name))
			return inner_keys[i].kinds & OF(kind);
	return false;
}

static int check_inner(const struct rope_keys *at, enum rope_kind kind)
{
	const char *name;
	json_t *value;
	char why[128];
	json_object_foreach((json_t *)at->inner.object, name, value)
	{
		if (json_is_null(value) || may_have(kind, name))
			continue;
		snprintf(why, sizeof(why), "what it means to rope_type \"%s\" is not known here",
			 kind_names[kind]);
		return reading_refuse(&at->inner, -ENOTSUP, name, why);
	}
	return 0;
}

static bool has_entries(const struct reading *in)
{
	return in->object && json_object_size(in->object) > 0;
}

static int find_inner(struct rope_keys *at)
{
	struct reading old;
	int r = reading_object(&at->top, "rope_scaling", "rope_scaling.", &old);
	if (r == 0)
		r = reading_object(&at->top, "rope_parameters", "rope_parameters.", &at->inner);
	if (r == 0 && has_entries(&old) && has_entries(&at->inner))
		r = reading_refuse(&at->top, -EINVAL, "rope_scaling",
				   "there are rope_parameters too; keep one of the two");
	if (r == 0 && has_entries(&old))
		at->inner = old;
	return r;
}

static int refuse_kind(const struct rope_keys *at, const char *key, const char *name)
{
	return reading_refuse(
		&at->inner, -ENOTSUP, key,
		strcmp(name, "dynamic")
			? "this rope_type is not known; known are default, linear, llama3, yarn "
			  "and "
			  "longrope"
			: "it changes with a sequence's length, and so would keys that are shared; "
			  "up to max_position_embeddings tokens it is as rope_type \"default\", "
			  "beyond that \"linear\" or \"yarn\" are fixed");
}

static int read_kind(const struct rope_keys *at, enum rope_kind *ret)
{
	const char *key = reading_find(&at->inner, "rope_type") ? "rope_type" : "type";
	const bool is_old = !strcmp(at->inner.within, "rope_scaling.");
	const char *name;
	int r = reading_text(&at->inner, key, "default", &name);
	if (r < 0)
		return r;
	if (is_old && !reading_find(&at->inner, key))
		return reading_refuse(&at->inner, -EINVAL, "rope_type",
				      "which way of RoPE is meant is not said");
	if ((at->family->traits & FAMILY_SU) && (!strcmp(name, "su") || !strcmp(name, "yarn")))
		name = "longrope";
	for (size_t i = 0; i < N_KINDS; i++)
		if (!strcmp(kind_names[i], name)) {
			*ret = i;
			return 0;
		}
	return refuse_kind(at, key, name);
}

/* Where both have a key, the inner one is meant. */
static const struct reading *reading_of(const struct rope_keys *at, const char *key)
{
	return reading_find(&at->inner, key) ? &at->inner : &at->top;
}

static int read_turned(const struct rope_keys *at, struct rope *rope)
{
	static const char key[] = "partial_rotary_factor";
	const struct reading *in = reading_of(at, key);
	double partial;
	int r = reading_number(in, key, 1, &partial);
	if (r < 0)
		return r;
	if (partial != 1 && !(at->family->traits & FAMILY_PARTIAL))
		return reading_refuse(in, -ENOTSUP, key, "of this model type all dims are turned");
	rope->n_turned = partial <= 1 ? at->shape->head_dim * partial : 1;
	if (rope->n_turned < 2 || rope->n_turned % 2)
		return reading_refuse(in, -EINVAL, key,
				      "it must make an even number of a head's dims, from 2 on");
	return 0;
}

/* The outer one is meant, and phi3 has one always: where the two differ, one of them is wrong. */
static int read_original(const struct rope_keys *at, double *ret)
{
	static const char key[] = "original_max_position_embeddings";
	const uint32_t fallback = at->family->original_positions;
	uint32_t outer = 0, inner = 0;
	int r = 0;
	if (reading_find(&at->top, key) || fallback)
		r = reading_count(&at->top, key, fallback, UINT32_MAX, &outer);
	if (r == 0 && reading_find(&at->inner, key))
		r = reading_count(&at->inner, key, 0, UINT32_MAX, &inner);
	if (r == 0 && inner && outer && inner != outer)
		r = reading_refuse(&at->inner, -EINVAL, key,
				   "it differs from the one outside, which models of this type go "
				   "by; make them alike");
	if (r == 0)
		*ret = outer ? outer : inner ? inner : at->shape->max_positions;
	return r;
}

static int read_needed(const struct rope_keys *at, const struct rope *rope, const char *key,
		       double *ret)
{
	char why[64];
	snprintf(why, sizeof(why), "rope_type \"%s\" needs it", kind_names[rope->kind]);
	return reading_find(&at->inner, key) ? reading_number(&at->inner, key, 0, ret)
					     : reading_refuse(&at->inner, -EINVAL, key, why);
}

static int read_llama3(const struct rope_keys *at, struct rope *rope)
{
	int r = read_needed(at, rope, "factor", &rope->factor);
	if (r == 0)
		r = read_needed(at, rope, "low_freq_factor", &rope->low_freq_factor);
	if (r == 0)
		r = read_needed(at, rope, "high_freq_factor", &rope->high_freq_factor);
	if (r == 0 && rope->high_freq_factor <= rope->low_freq_factor)
		r = reading_refuse(&at->inner, -EINVAL, "high_freq_factor",
				   "it must be above low_freq_factor");
	return r;
}

/* The factor, or where it is left out how often the original positions go into all. */
static int read_factor(const struct rope_keys *at, struct rope *rope)
{
	return reading_number(&at->inner, "factor",
			      at->shape->max_positions / rope->original_positions, &rope->factor);
}

static double yarn_scale(double factor, double mscale)
{
	return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static int read_yarn_attention(const struct rope_keys *at, struct rope *rope)
{
	double scale = 1, scale_all = 1;
	int r = 0;
	if (reading_find(&at->inner, "mscale") && reading_find(&at->inner, "mscale_all_dim")) {
		r = reading_number(&at->inner, "mscale", 0, &scale);
		if (r == 0)
			r = reading_number(&at->inner, "mscale_all_dim", 0, &scale_all);
		scale = yarn_scale(rope->factor, scale) / yarn_scale(rope->factor, scale_all);
	} else {
		scale = yarn_scale(rope->factor, 1);
	}
	return r < 0 ? r
		     : reading_number(&at->inner, "attention_factor", scale,
				      &rope->attention_factor);
}

static int read_yarn(const struct rope_keys *at, struct rope *rope)
{
	int r = read_factor(at, rope);
	if (r == 0)
		r = reading_number(&at->inner, "beta_fast", 32, &rope->beta_fast);
	if (r == 0)
		r = reading_number(&at->inner, "beta_slow", 1, &rope->beta_slow);
	if (r == 0 && rope->beta_fast < rope->beta_slow)
		r = reading_refuse(&at->inner, -EINVAL, "beta_fast", "it must be above beta_slow");
	if (r == 0)
		r = reading_flag(&at->inner, "truncate", true, &rope->truncate);
	if (r == 0 && rope->theta <= 1)
		r = reading_refuse(reading_of(at, "rope_theta"), -EINVAL, "rope_theta",
				   "it must be above 1");
	return r < 0 ? r : read_yarn_attention(at, rope);
}

static int read_divisors(const struct rope_keys *at, const char *key, struct rope *rope)
{
	const json_t *list = reading_find(&at->inner, key);
	const size_t n = rope->n_turned / 2;
	char why[96];
	if (!json_is_array(list) || json_array_size(list) != n) {
		snprintf(why, sizeof(why),
			 "rope_type \"longrope\" needs a list of %zu numbers there", n);
		return reading_refuse(&at->inner, -EINVAL, key, why);
	}
	for (size_t i = 0; i < n; i++) {
		rope->divisors[i] = json_number_value(json_array_get(list, i));
		if (!(rope->divisors[i] > 0))
			return reading_refuse(&at->inner, -EINVAL, key,
					      "its numbers must all be above 0");
	}
	return 0;
}

static int read_longrope(const struct rope_keys *at, struct rope *rope)
{
	const bool is_long = at->shape->limit > rope->original_positions;
	int r = read_factor(at, rope);
	if (r == 0)
		r = read_divisors(at, is_long ? "long_factor" : "short_factor", rope);
	if (r == 0 && rope->original_positions < 2)
		r = reading_refuse(reading_of(at, "original_max_position_embeddings"), -EINVAL,
				   "original_max_position_embeddings", "it must be 2 at least");
	if (r < 0)
		return r;
	const double scale =
		rope->factor <= 1 ? 1 : sqrt(1 + log(rope->factor) / log(rope->original_positions));
	return reading_number(&at->inner, "attention_factor", scale, &rope->attention_factor);
}

static int read_parameters(const struct rope_keys *at, struct rope *rope)
{
	switch (rope->kind) {
	case ROPE_LINEAR:
		return read_needed(at, rope, "factor", &rope->factor);
	case ROPE_LLAMA3:
		return read_llama3(at, rope);
	case ROPE_YARN:
		return read_yarn(at, rope);
	case ROPE_LONGROPE:
		return read_longrope(at, rope);
	case ROPE_DEFAULT:
		break;
	}
	return 0;
}

/* Numbers of any size are JSON; fp32 and fp64 have an end. */
static int check_frequencies(const struct rope_keys *at, const struct rope *rope)
{
	double inv_freq[ROPE_HALF_MAX];
	bool good = rope->attention_factor < 1e6;
	rope_frequencies(rope, inv_freq);
	for (uint32_t i = 0; i < rope->n_turned / 2; i++)
		good = good && inv_freq[i] < 1e6;
	return good ? 0
		    : fault_set(at->top.fault, -EINVAL,
				"%s: RoPE has numbers that are too large or too small",
				at->top.path);
}

int rope_read(const struct reading *in, const struct family *family, const struct rope_shape *shape,
	      struct rope *ret)
{
	struct rope_keys at = {.top = *in, .family = family, .shape = shape};
	struct rope rope = {.attention_factor = 1, .factor = 1};
	int r = find_inner(&at);
	if (r == 0)
		r = read_kind(&at, &rope.kind);
	if (r == 0)
		r = check_inner(&at, rope.kind);
	if (r == 0)
		r = reading_number(reading_of(&at, "rope_theta"), "rope_theta", family->theta,
				   &rope.theta);
	if (r == 0)
		r = read_turned(&at, &rope);
	if (r == 0)
		r = read_original(&at, &rope.original_positions);
	if (r == 0)
		r = read_parameters(&at, &rope);
	if (r == 0)
		r = check_frequencies(&at, &rope);
	if (r == 0)
		*ret = rope;
	return r;
}

/* Wavelengths beyond the original positions are stretched by factor, those that fit
 * high_freq_factor times into them are left, between them the two are blended. */
static double llama3(const struct rope *rope, double freq)
{
	const double fits = rope->original_positions * freq / (2 * M_PI);
	if (fits > rope->high_freq_factor)
		return freq;
	if (fits < rope->low_freq_factor)
		return freq / rope->factor;
	const double blend =
		(fits - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
	return (1 - blend) * freq / rope->factor + blend * freq;
}

/* The index at which a wavelength fits so many times into the original positions. */
static double yarn_index(const struct rope *rope, double times)
{
	return rope->n_turned * log(rope->original_positions / (times * 2 * M_PI)) /
	       (2 * log(rope->theta));
}

static double yarn(const struct rope *rope, uint32_t i, double freq)
{
	double low = yarn_index(rope, rope->beta_fast), high = yarn_index(rope, rope->beta_slow);
	if (rope->truncate) {
		low = floor(low);
		high = ceil(high);
	}
	low = fmax(low, 0);
	high = fmin(high, rope->n_turned - 1);
	if (low == high)
		high += 0.001;
	const double stretched = fmin(fmax((i - low) / (high - low), 0), 1);
	return freq / rope->factor * stretched + freq * (1 - stretched);
}

void rope_frequencies(const struct rope *rope, double *inv_freq)
{
	for (uint32_t i = 0; i < rope->n_turned / 2; i++) {
		const double freq = pow(rope->theta, -2.0 * i / rope->n_turned);
		switch (rope->kind) {
		case ROPE_DEFAULT:
			inv_freq[i] = freq;
			break;
		case ROPE_LINEAR:
			inv_freq[i] = freq / rope->factor;
			break;
		case ROPE_LLAMA3:
			inv_freq[i] = llama3(rope, freq);
			break;
		case ROPE_YARN:
			inv_freq[i] = yarn(rope, i, freq);
			break;
		case ROPE_LONGROPE:
			inv_freq[i] = freq / rope->divisors[i];
			break;
		}
	}
}
