/*
 * nvidia-smi -q -x: a small tolerant scanner for exactly this document, and the table of where its figures have been
 * in the drivers since 2012. Elements that aren't in the table are passed over, whatever they hold.
 */
#include "gpu/smi_parse.h"

#include "base/cleanup.h"
#include "base/parse.h"
#include "gpu/smi_table.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

#define DEPTH_MAX 32
#define PATH_BYTES 256
#define TEXT_BYTES 256

struct alias {
	char path[64]; /* below <gpu> */
	enum metric metric;
	enum smi_unit unit;
};

/* Several rows for one metric: the first that has a figure counts, in this order. */
static const struct alias aliases[] = {
	{"fb_memory_usage/total", METRIC_MEM_TOTAL, SMI_MIB},
	{"fb_memory_usage/used", METRIC_MEM_USED, SMI_MIB},
	{"fb_memory_usage/reserved", METRIC_MEM_RESERVED, SMI_MIB},
	{"utilization/gpu_util", METRIC_UTIL_GPU, SMI_PERCENT},
	{"utilization/memory_util", METRIC_UTIL_MEM, SMI_PERCENT},
	{"temperature/gpu_temp", METRIC_TEMP, SMI_CELSIUS},
	{"gpu_power_readings/power_draw", METRIC_POWER, SMI_WATT},
	{"gpu_power_readings/average_power_draw", METRIC_POWER, SMI_WATT},
	{"gpu_power_readings/instant_power_draw", METRIC_POWER, SMI_WATT},
	{"power_readings/power_draw", METRIC_POWER, SMI_WATT},
	{"gpu_power_readings/enforced_power_limit", METRIC_POWER_LIMIT, SMI_WATT},
	{"gpu_power_readings/current_power_limit", METRIC_POWER_LIMIT, SMI_WATT},
	{"power_readings/enforced_power_limit", METRIC_POWER_LIMIT, SMI_WATT},
	{"power_readings/power_limit", METRIC_POWER_LIMIT, SMI_WATT},
	{"fan_speed", METRIC_FAN, SMI_PERCENT},
	{"clocks/sm_clock", METRIC_CLOCK_SM, SMI_MHZ},
	{"clocks/mem_clock", METRIC_CLOCK_MEM, SMI_MHZ},
	{"performance_state", METRIC_PSTATE, SMI_PSTATE},
	{"mig_mode/current_mig", METRIC_MIG_MODE, SMI_SWITCH},
	{"gpu_recovery_action", METRIC_RECOVERY, SMI_RECOVERY},
	{"utilization/encoder_util", METRIC_UTIL_ENC, SMI_PERCENT},
	{"utilization/decoder_util", METRIC_UTIL_DEC, SMI_PERCENT},
	{"utilization/jpeg_util", METRIC_UTIL_JPG, SMI_PERCENT},
	{"utilization/ofa_util", METRIC_UTIL_OFA, SMI_PERCENT},
	{"clocks/graphics_clock", METRIC_CLOCK_GRAPHICS, SMI_MHZ},
	{"clocks/video_clock", METRIC_CLOCK_VIDEO, SMI_MHZ},
	{"max_clocks/sm_clock", METRIC_CLOCK_SM_MAX, SMI_MHZ},
	{"max_clocks/mem_clock", METRIC_CLOCK_MEM_MAX, SMI_MHZ},
	{"max_clocks/graphics_clock", METRIC_CLOCK_GRAPHICS_MAX, SMI_MHZ},
	{"max_clocks/video_clock", METRIC_CLOCK_VIDEO_MAX, SMI_MHZ},
	{"temperature/memory_temp", METRIC_TEMP_MEM, SMI_CELSIUS},
	{"temperature/gpu_temp_slow_threshold", METRIC_TEMP_SLOWDOWN, SMI_CELSIUS},
	{"temperature/gpu_temp_max_threshold", METRIC_TEMP_SHUTDOWN, SMI_CELSIUS},
	{"temperature/gpu_temp_tlimit", METRIC_TEMP_MARGIN, SMI_CELSIUS},
	{"gpu_power_readings/instant_power_draw", METRIC_POWER_INSTANT, SMI_WATT},
	{"gpu_power_readings/default_power_limit", METRIC_POWER_LIMIT_DEFAULT, SMI_WATT},
	{"power_readings/default_power_limit", METRIC_POWER_LIMIT_DEFAULT, SMI_WATT},
	{"gpu_power_readings/min_power_limit", METRIC_POWER_LIMIT_MIN, SMI_WATT},
	{"power_readings/min_power_limit", METRIC_POWER_LIMIT_MIN, SMI_WATT},
	{"gpu_power_readings/max_power_limit", METRIC_POWER_LIMIT_MAX, SMI_WATT},
	{"power_readings/max_power_limit", METRIC_POWER_LIMIT_MAX, SMI_WATT},
	{"pci/pci_gpu_link_info/pcie_gen/current_link_gen", METRIC_PCIE_GEN, SMI_COUNT},
	{"pci/pci_gpu_link_info/pcie_gen/max_link_gen", METRIC_PCIE_GEN_MAX, SMI_COUNT},
	{"pci/pci_gpu_link_info/link_widths/current_link_width", METRIC_PCIE_WIDTH, SMI_LANES},
	{"pci/pci_gpu_link_info/link_widths/max_link_width", METRIC_PCIE_WIDTH_MAX, SMI_LANES},
	{"pci/tx_util", METRIC_PCIE_TX, SMI_KIB_S},
	{"pci/rx_util", METRIC_PCIE_RX, SMI_KIB_S},
	{"pci/replay_counter", METRIC_PCIE_REPLAYS, SMI_COUNT},
	{"ecc_mode/current_ecc", METRIC_ECC_MODE, SMI_SWITCH},
	{"ecc_mode/pending_ecc", METRIC_ECC_MODE_PENDING, SMI_SWITCH},
	{"retired_pages/multiple_single_bit_retirement/retired_count", METRIC_RETIRED_CORR,
		SMI_COUNT},
	{"retired_pages/double_bit_retirement/retired_count", METRIC_RETIRED_UNCORR, SMI_COUNT},
	{"retired_pages/pending_retirement", METRIC_RETIRED_PENDING, SMI_YESNO},
	{"retired_pages/pending_blacklist", METRIC_RETIRED_PENDING, SMI_YESNO},
	{"remapped_rows/remapped_row_corr", METRIC_REMAP_CORR, SMI_COUNT},
	{"remapped_rows/remapped_row_unc", METRIC_REMAP_UNCORR, SMI_COUNT},
	{"remapped_rows/remapped_row_pending", METRIC_REMAP_PENDING, SMI_YESNO},
	{"remapped_rows/remapped_row_failure", METRIC_REMAP_FAILURE, SMI_YESNO},
	{"bar1_memory_usage/total", METRIC_BAR1_TOTAL, SMI_MIB},
	{"bar1_memory_usage/used", METRIC_BAR1_USED, SMI_MIB},
	{"persistence_mode", METRIC_PERSISTENCE, SMI_SWITCH},
	{"compute_mode", METRIC_COMPUTE_MODE, SMI_COMPUTE_MODE},
	{"mig_mode/pending_mig", METRIC_MIG_PENDING, SMI_SWITCH},
};

/* Counts of memory errors: several rows of one metric are added up. The last group is Pascal's and older. */
static const struct alias sums[] = {
	{"ecc_errors/volatile/sram_correctable", METRIC_ECC_CORR, SMI_COUNT},
	{"ecc_errors/volatile/dram_correctable", METRIC_ECC_CORR, SMI_COUNT},
	{"ecc_errors/volatile/sram_uncorrectable", METRIC_ECC_UNCORR, SMI_COUNT},
	{"ecc_errors/volatile/sram_uncorrectable_parity", METRIC_ECC_UNCORR, SMI_COUNT},
	{"ecc_errors/volatile/sram_uncorrectable_secded", METRIC_ECC_UNCORR, SMI_COUNT},
	{"ecc_errors/volatile/dram_uncorrectable", METRIC_ECC_UNCORR, SMI_COUNT},
	{"ecc_errors/aggregate/sram_correctable", METRIC_ECC_CORR_LIFE, SMI_COUNT},
	{"ecc_errors/aggregate/dram_correctable", METRIC_ECC_CORR_LIFE, SMI_COUNT},
	{"ecc_errors/aggregate/sram_uncorrectable", METRIC_ECC_UNCORR_LIFE, SMI_COUNT},
	{"ecc_errors/aggregate/sram_uncorrectable_parity", METRIC_ECC_UNCORR_LIFE, SMI_COUNT},
	{"ecc_errors/aggregate/sram_uncorrectable_secded", METRIC_ECC_UNCORR_LIFE, SMI_COUNT},
	{"ecc_errors/aggregate/dram_uncorrectable", METRIC_ECC_UNCORR_LIFE, SMI_COUNT},
	{"ecc_errors/volatile/single_bit/total", METRIC_ECC_CORR, SMI_COUNT},
	{"ecc_errors/volatile/double_bit/total", METRIC_ECC_UNCORR, SMI_COUNT},
	{"ecc_errors/aggregate/single_bit/total", METRIC_ECC_CORR_LIFE, SMI_COUNT},
	{"ecc_errors/aggregate/double_bit/total", METRIC_ECC_UNCORR_LIFE, SMI_COUNT},
};

/* NVML's clock-event bits by the name's end; the group was renamed with driver 535. */
static const char *const reason_groups[] = {
	"clocks_event_reasons/clocks_event_reason_",
	"clocks_throttle_reasons/clocks_throttle_reason_",
};
static const struct {
	const char *name;
	int64_t bit;
} reasons[] = {
	{"gpu_idle", 0x1},
	{"applications_clocks_setting", 0x2},
	{"sw_power_cap", 0x4},
	{"hw_slowdown", 0x8},
	{"sync_boost", 0x10},
	{"sw_thermal_slowdown", 0x20},
	{"hw_thermal_slowdown", 0x40},
	{"hw_power_brake_slowdown", 0x80},
	{"display_clocks_setting", 0x100},
};

struct reader {
	struct smi_table table;
	struct gpu_card *card; /* the <gpu> we are in; NULL outside, and for cards beyond GPU_MAX */
	bool in_gpu;
	uint8_t from[METRIC_N]; /* alias that gave the card's figure, + 1 */
	struct gpu_proc process;
	struct gpu_instance instance;
	bool in_driver, in_cuda; /* elements beside <gpu> */
	char path[PATH_BYTES]; /* below <gpu>, "/"-joined */
	size_t starts[DEPTH_MAX]; /* where each open element's name begins in path */
	unsigned depth; /* open elements below <gpu> */
	char text[TEXT_BYTES]; /* of the innermost element */
	size_t text_len;
	bool has_log, has_log_end;
};

static void begin_gpu(struct reader *r, const char *attrs, size_t n)
{
	const char *id = memmem(attrs, n, "id=\"", 4);

	r->in_gpu = true;
	r->depth = 0;
	r->path[0] = '\0';
	memset(r->from, 0, sizeof(r->from));
	r->card = smi_table_card(&r->table);
	if (r->card != NULL && id != NULL) {
		const char *end = memchr(id + 4, '"', n - (size_t)(id + 4 - attrs));

		if (end != NULL)
			smi_copy(id + 4, (size_t)(end - id - 4), r->card->bus_id,
				sizeof(r->card->bus_id));
	}
}

static void put_figure(struct reader *r, size_t alias, const char *s, size_t n)
{
	enum metric m = aliases[alias].metric;
	struct value v = smi_figure(s, n, aliases[alias].unit);
	struct value *to = &r->card->m[m];

	if (value_is_present(*to) && (!value_is_present(v) || r->from[m] <= alias + 1))
		return;
	/* Of two absences the earlier row's reason stands. */
	if (!value_is_present(*to) && !value_is_present(v) && r->from[m] != 0 &&
		r->from[m] <= alias + 1)
		return;
	*to = v;
	r->from[m] = (uint8_t)(alias + 1);
}

static void put_sum(struct reader *r, const struct alias *x, const char *s, size_t n)
{
	struct value *to = &r->card->m[x->metric], v = smi_figure(s, n, x->unit);

	if (value_is_present(*to) && value_is_present(v))
		to->v += v.v;
	else if (value_is_present(v) || !value_is_present(*to))
		*to = v;
}

static void put_reason(struct reader *r, const char *name, const char *s, size_t n)
{
	struct value *to = &r->card->m[METRIC_THROTTLE];

	for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
		bool is_active = n == 6 && strncasecmp(s, "Active", n) == 0;

		if (strcmp(name, reasons[i].name) != 0 ||
			(!is_active && smi_absence(s, n) != VALUE_EMPTY))
			continue;
		if (!value_is_present(*to))
			*to = value_of(0);
		if (is_active)
			to->v |= reasons[i].bit;
	}
}

/* "Ada Lovelace" is Ada: the first word is what NVML's numbers are called by. */
static void put_arch(struct gpu_card *c, const char *s, size_t n)
{
	const char *blank = memchr(s, ' ', n);

	smi_copy(s, blank != NULL ? (size_t)(blank - s) : n, c->arch, sizeof(c->arch));
}

static void put_identity(struct reader *r, const char *s, size_t n)
{
	struct gpu_card *c = r->card;

	if (strcmp(r->path, "uuid") == 0 && smi_absence(s, n) == VALUE_PRESENT)
		smi_copy(s, n, c->uuid, sizeof(c->uuid));
	else if (strcmp(r->path, "uuid") == 0 && smi_absence(s, n) == VALUE_LOST)
		c->state = GPU_LOST;
	else if (strcmp(r->path, "product_name") == 0 && smi_absence(s, n) == VALUE_PRESENT)
		smi_copy(s, n, c->name, sizeof(c->name));
	else if (strcmp(r->path, "product_architecture") == 0 && smi_absence(s, n) == VALUE_PRESENT)
		put_arch(c, s, n);
	else if (strcmp(r->path, "pci/pci_bus_id") == 0 && smi_absence(s, n) == VALUE_PRESENT)
		smi_copy(s, n, c->bus_id, sizeof(c->bus_id));
	else if (strcmp(r->path, "fb_memory_usage/total") == 0 && smi_absence(s, n) == VALUE_LOST)
		c->state = memmem(s, n, "eset", 4) != NULL ? GPU_NEEDS_RESET : GPU_LOST;
}

/* A number of an instance + 1; 0 for none. */
static int32_t instance_id(const char *s, size_t n)
{
	struct value v = smi_figure(s, n, SMI_COUNT);

	return value_is_present(v) && v.v < INT_MAX ? (int32_t)v.v + 1 : 0;
}

static void put_instance(struct reader *r, const char *s, size_t n)
{
	const char *what = r->path + strlen("mig_devices/mig_device/");

	if (strcmp(what, "gpu_instance_id") == 0)
		r->instance.gi = instance_id(s, n);
	else if (strcmp(what, "compute_instance_id") == 0)
		r->instance.ci = instance_id(s, n);
	else if (strcmp(what, "fb_memory_usage/total") == 0)
		r->instance.mem_total_mib = smi_figure(s, n, SMI_MIB);
	else if (strcmp(what, "fb_memory_usage/used") == 0)
		r->instance.mem_used_mib = smi_figure(s, n, SMI_MIB);
	else if (strcmp(what, "device_attributes/shared/multiprocessor_count") == 0 ||
		 strcmp(what, "device_attributes/multiprocessor_count") == 0)
		r->instance.sm_count = smi_figure(s, n, SMI_COUNT);
}

static void end_instance(struct reader *r)
{
	struct smi_table *t = &r->table;

	r->instance.card = (uint32_t)(r->card - t->cards);
	if (r->instance.gi > 0 && t->n_instances < GPU_INSTANCE_MAX)
		t->instances[t->n_instances++] = r->instance;
	r->instance = (struct gpu_instance){.mem_total_mib = value_absent(VALUE_UNSUPPORTED),
		.mem_used_mib = value_absent(VALUE_UNSUPPORTED),
		.sm_count = value_absent(VALUE_UNSUPPORTED)};
}

static void put_process(struct reader *r, const char *s, size_t n)
{
	const char *what = r->path + strlen("processes/process_info/");
	char digits[16];
	int64_t pid;

	if (strcmp(what, "pid") == 0 && n < sizeof(digits)) {
		memcpy(digits, s, n);
		digits[n] = '\0';
		if (parse_int64(digits, &pid) == 0 && pid > 0 && pid <= INT_MAX)
			r->process.pid = (int32_t)pid;
	} else if (strcmp(what, "type") == 0) {
		r->process.kind = (memchr(s, 'G', n) != NULL ? GPU_PROC_GRAPHICS : 0) |
				  (memchr(s, 'M', n) != NULL ? GPU_PROC_MPS : 0) |
				  (memchr(s, 'C', n) != NULL ? GPU_PROC_COMPUTE : 0);
	} else if (strcmp(what, "gpu_instance_id") == 0) {
		r->process.gi = instance_id(s, n);
	} else if (strcmp(what, "compute_instance_id") == 0) {
		r->process.ci = instance_id(s, n);
	} else if (strcmp(what, "used_memory") == 0) {
		r->process.used_mib = smi_figure(s, n, SMI_MIB);
	}
}

static void end_process(struct reader *r)
{
	if (r->process.pid > 0) {
		r->process.card = (uint32_t)(r->card - r->table.cards);
		if (r->process.kind == 0)
			r->process.kind = GPU_PROC_COMPUTE;
		smi_table_proc(&r->table, r->process);
	}
	r->process = (struct gpu_proc){.used_mib = value_absent(VALUE_UNSUPPORTED)};
}

/* An element below <gpu> ended; r->path names it. */
static void end_element(struct reader *r)
{
	const char *s = r->text;
	size_t n = r->text_len;

	smi_trim(&s, &n);
	if (r->card == NULL)
		return;
	if (strcmp(r->path, "processes/process_info") == 0) {
		end_process(r);
		return;
	}
	if (strncmp(r->path, "processes/process_info/", 23) == 0) {
		put_process(r, s, n);
		return;
	}
	if (strcmp(r->path, "mig_devices/mig_device") == 0) {
		end_instance(r);
		return;
	}
	if (strncmp(r->path, "mig_devices/mig_device/", 23) == 0) {
		put_instance(r, s, n);
		return;
	}
	put_identity(r, s, n);
	for (size_t i = 0; i < ARRAY_LEN(sums); i++) {
		if (strcmp(r->path, sums[i].path) == 0)
			put_sum(r, &sums[i], s, n);
	}
	for (size_t i = 0; i < ARRAY_LEN(aliases); i++) {
		if (strcmp(r->path, aliases[i].path) == 0)
			put_figure(r, i, s, n);
	}
	for (size_t i = 0; i < ARRAY_LEN(reason_groups); i++) {
		size_t len = strlen(reason_groups[i]);

		if (strncmp(r->path, reason_groups[i], len) == 0)
			put_reason(r, r->path + len, s, n);
	}
}

static int open_element(struct reader *r, const char *name, size_t n)
{
	size_t at = strlen(r->path);

	if (r->depth == DEPTH_MAX || at + n + 2 > PATH_BYTES)
		return -E2BIG;
	r->starts[r->depth++] = at;
	if (at > 0)
		r->path[at++] = '/';
	memcpy(r->path + at, name, n);
	r->path[at + n] = '\0';
	return 0;
}

static void close_element(struct reader *r)
{
	end_element(r);
	r->path[r->starts[--r->depth]] = '\0';
}

static bool is_blank_or_slash(char c)
{
	return c == '/' || c == ' ' || (c >= '\t' && c <= '\r');
}

/* What stood between the tags of a version is it. */
static void end_version(struct reader *r, bool is_end)
{
	const char *s = r->text;
	size_t n = r->text_len;

	smi_trim(&s, &n);
	if (is_end && r->in_driver && smi_absence(s, n) == VALUE_PRESENT)
		smi_copy(s, n, r->table.driver, sizeof(r->table.driver));
	if (is_end && r->in_cuda && smi_absence(s, n) == VALUE_PRESENT)
		smi_copy(s, n, r->table.cuda, sizeof(r->table.cuda));
	r->in_driver = r->in_cuda = false;
	r->text_len = 0;
}

/* A tag, without its angle brackets. */
static int take_tag(struct reader *r, const char *s, size_t n)
{
	bool is_end = n > 0 && s[0] == '/', is_empty = n > 0 && s[n - 1] == '/';
	size_t name = 0;
	int ret = 0;

	if (is_end)
		s++, n--;
	while (name < n && !is_blank_or_slash(s[name]))
		name++;
	if (!r->in_gpu) {
		if (name == 14 && strncmp(s, "nvidia_smi_log", name) == 0)
			*(is_end ? &r->has_log_end : &r->has_log) = true;
		end_version(r, is_end);
		if (!is_end && name == 14 && strncmp(s, "driver_version", name) == 0)
			r->in_driver = true;
		if (!is_end && name == 12 && strncmp(s, "cuda_version", name) == 0)
			r->in_cuda = true;
		if (!is_end && !is_empty && r->has_log && name == 3 && strncmp(s, "gpu", name) == 0)
			begin_gpu(r, s, n);
	} else if (!is_end) {
		ret = open_element(r, s, name);
		r->text_len = 0;
		if (ret == 0 && is_empty)
			close_element(r);
	} else if (r->depth > 0) {
		close_element(r);
		r->text_len = 0;
	} else {
		r->in_gpu = false;
		r->card = NULL;
	}
	return ret;
}

static void take_text(struct reader *r, const char *s, size_t n)
{
	size_t room = TEXT_BYTES - r->text_len;

	n = n < room ? n : room;
	memcpy(r->text + r->text_len, s, n);
	r->text_len += n;
}

static int scan(struct reader *r, const char *s, const char *end)
{
	while (s < end) {
		const char *lt = memchr(s, '<', (size_t)(end - s)), *gt;
		int ret;

		if (r->in_gpu || r->in_driver || r->in_cuda)
			take_text(r, s, (size_t)((lt != NULL ? lt : end) - s));
		if (lt == NULL)
			return 0;
		if (end - lt >= 4 && memcmp(lt, "<!--", 4) == 0) {
			gt = memmem(lt, (size_t)(end - lt), "-->", 3);
			s = gt != NULL ? gt + 3 : end;
			continue;
		}
		gt = memchr(lt, '>', (size_t)(end - lt));
		if (gt == NULL)
			return -EINVAL;
		s = gt + 1;
		if (lt[1] == '?' || lt[1] == '!')
			continue;
		ret = take_tag(r, lt + 1, (size_t)(gt - lt - 1));
		if (ret < 0)
			return ret;
	}
	return 0;
}

int smi_parse_xml(const char *text, size_t n, struct gpu_snapshot *ret, struct err *e)
{
	struct reader r = {.process = {.used_mib = value_absent(VALUE_UNSUPPORTED)}};
	int code;

	smi_table_init(&r.table);
	r.instance.mem_total_mib = r.instance.mem_used_mib = r.instance.sm_count =
		value_absent(VALUE_UNSUPPORTED);
	code = scan(&r, text, text + n);
	/* A document that was cut may lack a card, or a card's processes. */
	if (code < 0 || !r.has_log || !r.has_log_end || r.table.n_cards == 0) {
		smi_table_done(&r.table);
		return err_set(e, -EINVAL, "nvidia-smi failed: what -q -x printed is not its XML");
	}
	smi_table_take(&r.table, ret);
	return 0;
}
