/*
 * config.c - the defaults, out of keys.def.
 */
#include "config.h"

#define MIB (UINT64_C(1) << 20)

void config_init(struct config *config)
{
	*config = (struct config){
#define TEXT(kind, name, field, size, preset, ...) .field = preset,
#define WORD(name, field, preset, ...) .field = preset,
#define CHOICE(kind, name, type, field, preset, ...) .field = preset,
#define COUNT(name, field, preset, ...) .field = preset,
#define LONG_COUNT(name, field, preset, ...) .field = preset,
#define OCTAL(name, field, preset, ...) .field = preset,
#define SIZE(name, field, preset, ...) .field = preset,
#include "keys.def"
	};
}
