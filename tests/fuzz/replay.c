/*
 * Runs a fuzz target over files and directories of files, without a fuzzer: what a fuzzer found once is tested for ever,
 * with any compiler. Fails when there was nothing to run.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static int run_file(const char *path)
{
	FILE *f = fopen(path, "re");
	uint8_t *bytes = NULL;
	size_t n = 0, cap = 0, got = 1;

	if (!f) {
		perror(path);
		exit(1);
	}
	while (got > 0) {
		if (n == cap) {
			cap = cap ? cap * 2 : 4096;
			bytes = realloc(bytes, cap);
			if (!bytes)
				abort();
		}
		got = fread(bytes + n, 1, cap - n, f);
		n += got;
	}
	fclose(f);
	/* In memory of exactly that size, so that a sanitizer sees every step over its end. */
	uint8_t *exact = malloc(n ? n : 1);
	if (!exact)
		abort();
	memcpy(exact, bytes, n);
	free(bytes);
	LLVMFuzzerTestOneInput(exact, n);
	free(exact);
	return 1;
}

static int run(const char *path)
{
	DIR *d = opendir(path);
	struct dirent *entry;
	int ran = 0;

	if (!d)
		return run_file(path);
	while ((entry = readdir(d))) {
		char name[4096];
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		ran += run(name);
	}
	closedir(d);
	return ran;
}

int main(int argc, char **argv)
{
	int ran = 0;

	for (int i = 1; i < argc; i++)
		ran += run(argv[i]);
	printf("%d inputs\n", ran);
	return ran == 0;
}
