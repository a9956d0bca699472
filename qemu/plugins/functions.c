// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the instructions that a guest executes, and those of each function of its kernel, the
 * writes to system registers (MSR) and the barriers (ISB) among them.
 *
 *   -plugin functions.so,symbols=FILE,out=FILE
 *
 * An interval is from one "mov x9, x9", which does nothing and no compiler makes, to the next. At
 * the end of each a line is appended to `out`
 *
 *   interval NUMBER INSTRUCTIONS
 *
 * and, for each function that ran in it, a line with tabs between
 *
 *   INSTRUCTIONS MSR ISB NAME [MODULE]
 *
 * where the forms of MSR that write to PSTATE do not count as MSR. The names come from `symbols`,
 * which the guest fills with its /proc/kallsyms before the second marker. Up to the first one
 * nothing is counted, so that the guest boots at its usual speed.
 *
 * It is meant for -icount, where one CPU runs at a time: the counts are plain additions.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qemu-plugin.h>

QEMU_PLUGIN_EXPORT int qemu_plugin_version = QEMU_PLUGIN_VERSION;

#define MARKER 0xaa0903e9

enum kind { OTHER, MSR, ISB, KINDS };

/* An instruction of the kernel, and how often it was executed as what. Code may be patched. */
struct site {
	uint64_t address;
	uint64_t count[KINDS];
};

struct symbol {
	uint64_t address;
	char *name;
	uint64_t count[KINDS];
};

static qemu_plugin_id_t plugin;
static const char *symbols_path;
static FILE *out;
static struct qemu_plugin_scoreboard *board;
static qemu_plugin_u64 executed;
static uint64_t executed_before;
static uint64_t interval;
static bool counting;
/* Translation and the end of an interval may come from several threads. */
static GMutex lock;
static GHashTable *sites;
static GArray *symbols;

static enum kind kind_of(uint32_t opcode)
{
	if ((opcode & 0xfff00000) == 0xd5100000)
		return MSR;
	if ((opcode & 0xfffff0ff) == 0xd50330df)
		return ISB;
	return OTHER;
}

static int by_address(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return (x->address > y->address) - (x->address < y->address);
}

static bool read_symbols(void)
{
	/* What lies below the first function. */
	struct symbol symbol = { .name = g_strdup("?") };
	char line[4096], type, name[2048], module[256];
	FILE *file;

	if (symbols->len)
		return true;
	file = fopen(symbols_path, "r");
	if (!file) {
		fprintf(stderr, "functions: %s: %s\n", symbols_path, strerror(errno));
		return false;
	}
	g_array_append_val(symbols, symbol);
	while (fgets(line, sizeof(line), file)) {
		module[0] = '\0';
		if (sscanf(line, "%" SCNx64 " %c %2047s %255s", &symbol.address, &type, name, module) < 3 ||
		    !strchr("tTwW", type))
			continue;
		symbol.name = g_strdup_printf("%s%s%s", name, module[0] ? "\t" : "", module);
		g_array_append_val(symbols, symbol);
	}
	fclose(file);
	g_array_sort(symbols, by_address);
	return true;
}

static struct symbol *symbol_of(uint64_t address)
{
	unsigned int low = 0, high = symbols->len;

	while (high - low > 1) {
		unsigned int middle = (low + high) / 2;

		if (g_array_index(symbols, struct symbol, middle).address <= address)
			low = middle;
		else
			high = middle;
	}
	return &g_array_index(symbols, struct symbol, low);
}

static void report(uint64_t instructions)
{
	GHashTableIter iter;
	gpointer value;

	fprintf(out, "interval %" PRIu64 " %" PRIu64 "\n", interval++, instructions);
	if (!read_symbols())
		return;
	g_hash_table_iter_init(&iter, sites);
	while (g_hash_table_iter_next(&iter, NULL, &value)) {
		struct site *site = value;
		struct symbol *symbol = symbol_of(site->address);

		for (int kind = 0; kind < KINDS; kind++) {
			symbol->count[kind] += site->count[kind];
			site->count[kind] = 0;
		}
	}
	for (unsigned int i = 0; i < symbols->len; i++) {
		struct symbol *symbol = &g_array_index(symbols, struct symbol, i);
		uint64_t *count = symbol->count;

		if (count[OTHER] + count[MSR] + count[ISB])
			fprintf(out, "%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\n",
				count[OTHER] + count[MSR] + count[ISB], count[MSR], count[ISB], symbol->name);
		memset(count, 0, sizeof(symbol->count));
	}
	fflush(out);
}

static void executed_site(unsigned int vcpu, void *count)
{
	++*(uint64_t *)count;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);

static void count_all(qemu_plugin_id_t id)
{
	counting = true;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

static void executed_marker(unsigned int vcpu, void *unused)
{
	uint64_t now;

	if (!counting) {
		/* All that was translated is forgotten, and translated again with callbacks. */
		qemu_plugin_reset(plugin, count_all);
		return;
	}
	g_mutex_lock(&lock);
	now = qemu_plugin_u64_sum(executed);
	report(now - executed_before);
	executed_before = now;
	g_mutex_unlock(&lock);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t address = qemu_plugin_insn_vaddr(insn);
		uint32_t opcode = 0;
		struct site *site;

		qemu_plugin_insn_data(insn, &opcode, sizeof(opcode));
		opcode = GUINT32_FROM_LE(opcode);
		if (counting) {
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64,
									     executed, 1);
			/* The kernel's half of the addresses. */
			if (address >> 63) {
				g_mutex_lock(&lock);
				site = g_hash_table_lookup(sites, &address);
				if (!site) {
					site = g_new0(struct site, 1);
					site->address = address;
					g_hash_table_insert(sites, &site->address, site);
				}
				g_mutex_unlock(&lock);
				qemu_plugin_register_vcpu_insn_exec_cb(insn, executed_site, QEMU_PLUGIN_CB_NO_REGS,
								       &site->count[kind_of(opcode)]);
			}
		}
		if (opcode == MARKER)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, executed_marker, QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
}

QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	const char *out_path = NULL;

	for (int i = 0; i < argc; i++) {
		if (g_str_has_prefix(argv[i], "symbols=")) {
			symbols_path = g_strdup(argv[i] + strlen("symbols="));
		} else if (g_str_has_prefix(argv[i], "out=")) {
			out_path = argv[i] + strlen("out=");
		} else {
			fprintf(stderr, "functions: '%s' is none of symbols=FILE, out=FILE\n", argv[i]);
			return -1;
		}
	}
	if (!symbols_path || !out_path) {
		fprintf(stderr, "functions: needs symbols=FILE and out=FILE\n");
		return -1;
	}
	out = fopen(out_path, "w");
	if (!out) {
		fprintf(stderr, "functions: %s: %s\n", out_path, strerror(errno));
		return -1;
	}
	plugin = id;
	board = qemu_plugin_scoreboard_new(sizeof(uint64_t));
	executed = qemu_plugin_scoreboard_u64(board);
	sites = g_hash_table_new(g_int64_hash, g_int64_equal);
	symbols = g_array_new(FALSE, FALSE, sizeof(struct symbol));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
