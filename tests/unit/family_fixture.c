/*
 * family_fixture.c - models.json by jansson, rows.bin as it is, and the generator of families.py.
 *
 * The generator hashes a name (FNV-1a) and counts on from there (splitmix64), so that any element
 * is a function of its tensor's name and its index.
 */
#include "family_fixture.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const uint32_t family_prompts[FAMILY_PROMPTS] = {5, 300, 1500};

_Static_assert(sizeof(struct family_row) == 56, "as families.py packs it");

/* ---- files ---------------------------------------------------------------------------------- */

static const json_t *member(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	if (!value)
		fail_msg("models.json: no %s", key);
	return value;
}

static void take_tensors(const json_t *shapes, struct family_model *ret)
{
	const char *name;
	json_t *shape;
	ret->tensors = calloc(json_object_size(shapes), sizeof(*ret->tensors));
	assert_non_null(ret->tensors);
	json_object_foreach((json_t *)shapes, name, shape)
	{
		struct family_tensor *tensor = &ret->tensors[ret->n_tensors++];
		const bool is_vector = json_array_size(shape) == 1;
		tensor->name = name;
		tensor->n_out = is_vector ? 0 : json_integer_value(json_array_get(shape, 0));
		tensor->n_in = json_integer_value(json_array_get(shape, is_vector ? 0 : 1));
	}
}

static void take_inv_freq(const json_t *list, struct family_model *ret)
{
	ret->n_inv_freq = json_array_size(list);
	ret->inv_freq = calloc(ret->n_inv_freq, sizeof(double));
	assert_non_null(ret->inv_freq);
	for (uint32_t i = 0; i < ret->n_inv_freq; i++)
		ret->inv_freq[i] = json_number_value(json_array_get(list, i));
}

static void take_model(const json_t *note, struct family_model *ret)
{
	const json_t *config = member(note, "config"), *moved = member(note, "moved");
	ret->name = json_string_value(member(note, "name"));
	ret->on_gpu = json_is_true(member(note, "gpu"));
	ret->config = json_dumps(config, 0);
	ret->max_positions = json_integer_value(member(note, "max_positions"));
	ret->n_vocab = json_integer_value(member(config, "vocab_size"));
	ret->rope_factor = json_number_value(member(note, "rope_factor"));
	ret->moved_bf16 = json_number_value(member(moved, "bf16"));
	ret->moved_products = json_number_value(member(moved, "bf16_products"));
	ret->moved_angles = json_number_value(member(moved, "angles"));
	take_tensors(member(note, "tensors"), ret);
	take_inv_freq(member(note, "inv_freq"), ret);
}

void families_init(struct families *families)
{
	const size_t per_model = FAMILY_PROMPTS * FAMILY_TOKENS;
	json_error_t error;
	json_t *notes = json_load_file(MODELS_DIR "/models.json", 0, &error);
	if (!notes)
		fail_msg("models.json: %s (line %d)", error.text, error.line);
	*families = (struct families){.notes = notes, .n = json_array_size(notes)};
	families->models = calloc(families->n, sizeof(*families->models));
	families->rows = calloc(families->n * per_model, sizeof(*families->rows));
	assert_true(families->models && families->rows);
	FILE *file = fopen(MODELS_DIR "/rows.bin", "re");
	assert_non_null(file);
	assert_int_equal(fread(families->rows, sizeof(*families->rows), families->n * per_model,
			       file),
			 families->n * per_model);
	assert_int_equal(fgetc(file), EOF);
	fclose(file);
	for (uint32_t i = 0; i < families->n; i++) {
		take_model(json_array_get(notes, i), &families->models[i]);
		families->models[i].rows = families->rows + i * per_model;
	}
}

void families_done(struct families *families)
{
	for (uint32_t i = 0; i < families->n; i++) {
		free(families->models[i].config);
		free(families->models[i].tensors);
		free(families->models[i].inv_freq);
	}
	free(families->models);
	free(families->rows);
	json_decref(families->notes);
}

/* ---- the generator -------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
	return hash;
}

static uint64_t draw(uint64_t seed, uint64_t index)
{
	uint64_t x = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* Outputs of a matrix are about as large as its inputs. */
static float element(const struct family_tensor *tensor, int byte)
{
	const float centred = 2 * byte - 255;
	if (!tensor->n_out && strstr(tensor->name, "norm"))
		return (96 + byte % 64) / 128.0f;
	if (!tensor->n_out)
		return centred / 1024;
	if (strstr(tensor->name, "embed"))
		return centred / 256;
	const int bits = ceil(log2(tensor->n_in));
	return ldexpf(centred, -(7 + bits / 2));
}

void family_weight(const struct family_model *model, const struct family_tensor *tensor, float *ret)
{
	const size_t n = (size_t)(tensor->n_out ? tensor->n_out : 1) * tensor->n_in;
	char name[128];
	snprintf(name, sizeof(name), "%s/%s", model->name, tensor->name);
	const uint64_t seed = hash_name(name);
	float values[256];
	for (int i = 0; i < 256; i++)
		values[i] = element(tensor, i);
	for (size_t i = 0; i < n; i += 8) {
		const uint64_t word = draw(seed, i / 8);
		for (size_t j = i; j < n && j < i + 8; j++)
			ret[j] = values[word >> 8 * (j - i) & 255];
	}
}

void family_ids(const struct family_model *model, uint32_t n_prompt, uint32_t *ret)
{
	char name[64];
	snprintf(name, sizeof(name), "%s/ids/%u", model->name, n_prompt);
	const uint64_t seed = hash_name(name);
	for (uint32_t i = 0; i < n_prompt + FAMILY_TOKENS; i++)
		ret[i] = draw(seed, i) % model->n_vocab;
}
