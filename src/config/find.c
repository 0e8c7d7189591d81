/* A name as people type it, among those that there are. Pure. */
#include "config/config_inner.h"

#include "base/cleanup.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>

/* How well a name fits: exact, in another case, as a part, not at all. */
static int fit(const char *candidate, const char *name)
{
	if (strcmp(candidate, name) == 0)
		return 3;
	if (strcasecmp(candidate, name) == 0)
		return 2;
	return *name && strcasestr(candidate, name) ? 1 : 0;
}

static int no_such(const char *const *names, size_t n, const char *what, const char *whose,
	const char *name, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0}, all = {0};

	text_put_repr(&q, name, strnlen(name, 80));
	if (n == 0)
		return err_set(
			e, -ENOENT, "there's no %s %s; %s names none", what, buf_str(&q), whose);
	for (size_t i = 0; i < n && all.len < 300; i++)
		buf_printf(&all, "%s%s", i ? ", " : "", names[i]);
	return err_set(
		e, -ENOENT, "there's no %s %s; %s has %s", what, buf_str(&q), whose, buf_str(&all));
}

int config_find_name(const char *const *names, size_t n, const char *what, const char *whose,
	const char *name, size_t *ret, struct err *e)
{
	CLEANUP(buf_done) struct buf q = {0}, which = {0};
	size_t found = 0, n_found = 0;
	int best = 0;

	for (size_t i = 0; i < n; i++) {
		int f = fit(names[i], name);

		if (f > best) {
			best = f;
			n_found = 0;
			buf_clear(&which);
		}
		if (f == 0 || f < best)
			continue;
		found = i;
		n_found++;
		if (which.len < 300)
			buf_printf(&which, "%s%s", which.len ? ", " : "", names[i]);
	}
	if (n_found == 0)
		return no_such(names, n, what, whose, name, e);
	if (n_found > 1) {
		text_put_repr(&q, name, strnlen(name, 80));
		return err_set(
			e, -EEXIST, "%s isn't clear: it could be %s", buf_str(&q), buf_str(&which));
	}
	*ret = found;
	return 0;
}
