# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every script here shares; to be sourced: `. "$(dirname "$0")/lib.sh"`.
#
#   ROOT   the checkout                 CACHE  what checkouts share, see README
#   BUILD  everything generated here    LOG    each step's full output
#
# Everything a person reads goes to stderr, so that a script's stdout stays its result.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BUILD=$ROOT/build
LOG=$BUILD/log
# The workshop mounts the cache at one place, whatever the host calls it.
if [[ -e /etc/rust-pmu/rootfs ]]; then
	IN_WORKSHOP=1 CACHE=/cache
else
	IN_WORKSHOP='' CACHE=${XDG_CACHE_HOME:-${HOME:?is not set, and the cache lives under it}/.cache}/rust-pmu
fi
PROG=${0##*/}
[[ $CACHE == /* ]] || { echo "$PROG: XDG_CACHE_HOME='${XDG_CACHE_HOME:-}' must be an absolute path" >&2; exit 2; }
# chroot and its like are not on every user's path.
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# shellcheck disable=SC2034 # for the scripts that source this file
JOBS=$(nproc)

say() { printf '%s\n' "$*" >&2; }
die() { say "$PROG: $*"; exit 1; }
# A wrong argument: one line that says what is wrong and what is right.
wrong() { say "$PROG: $* (see $PROG --help)"; exit 2; }

# Prints the comment at the top of the calling script: its manual is there, once.
manual() { sed -n '2,/^[^#]/{/^# SPDX/d;/^#/!q;s/^# \{0,1\}//;p}' "$0"; exit 0; }

# as_time SECONDS -> "9 s" or "2 min 09 s"
as_time() {
	if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); fi
}

# Shows that a step is alive: a counter on a terminal, a line a minute elsewhere. It waits in a
# builtin, so that no child outlives it.
ticker() {
	local text=$1 log=$2 nothing start=$SECONDS said=0 n
	exec {nothing}<> <(:)
	while kill -0 $$ 2>/dev/null; do
		read -rt 1 -u "$nothing" || :
		n=$((SECONDS - start))
		if [[ -t 2 ]]; then
			printf '\r\e[K  %s ... %s, %d lines' "$text" "$(as_time $n)" "$(wc -l <"$log")" >&2
		elif ((n / 60 > said)); then
			said=$((n / 60))
			say "  $text: $(as_time $n), still running (${log#"$ROOT"/})"
		fi
	done
}

# step NAME TEXT COMMAND...: runs a long command with progress. Its output is kept in
# build/log/NAME.log; when it fails, the last lines are shown and the script ends.
# COMMAND is a program: a shell function would run without `set -e`.
step() {
	local name=$1 text=$2 start=$SECONDS rc=0 tick log
	shift 2
	log=$LOG/$name.log
	{ mkdir -p "$LOG" && : >"$log"; } || die "cannot write $log"
	[[ -t 2 ]] || say "  $text ..."
	ticker "$text" "$log" >/dev/null &
	tick=$!
	"$@" >"$log" 2>&1 </dev/null || rc=$?
	kill "$tick" 2>/dev/null || :
	wait "$tick" 2>/dev/null || :
	[[ ! -t 2 ]] || printf '\r\e[K' >&2
	if ((rc)); then
		say "  $text: FAILED after $(as_time $((SECONDS - start))), exit status $rc"
		say "--- the last lines of ${log#"$ROOT"/}"
		tail -n 25 "$log" >&2
		say "---"
		if grep -qi 'no space left on device\|enough free space' "$log"; then
			say "  the disk is full: make room at $CACHE (or set XDG_CACHE_HOME) and start again"
		fi
		return "$rc"
	fi
	say "  $text: $(as_time $((SECONDS - start)))"
}

# lock NAME WHAT: holds the lock NAME of the cache until unlock, or until this script and what it
# started have ended, however they end.
lock() {
	mkdir -p "$CACHE/lock" || die "cannot write $CACHE"
	exec {lock_fd}<>"$CACHE/lock/$1"
	if ! flock -n "$lock_fd"; then
		say "  waiting for $(cat "$CACHE/lock/$1")"
		flock "$lock_fd"
	fi
	printf 'process %d (%s in %s)\n' $$ "$2" "$ROOT" >"$CACHE/lock/$1"
}

unlock() { exec {lock_fd}>&-; }

# need_space DIR MEGABYTES WHAT: better now than a half-written tree later.
need_space() {
	local free
	free=$(df -m --output=avail "$1" | tail -1)
	((free >= $2)) || die "$3 needs $2 MB at $1, there are ${free// /} MB free: make room, or set XDG_CACHE_HOME to a larger disk"
}

# key_of: 12 hex digits that stand for stdin.
key_of() { sha256sum | cut -c1-12; }

# prune N DIR...: of the folders given, keeps the N newest (by the time that their use touched).
prune() {
	local keep=$1 dir
	shift
	(($# > keep)) || return 0
	# shellcheck disable=SC2012 # the names are ours: a word and a hash
	ls -1td "$@" | tail -n +$((keep + 1)) | while read -r dir; do remove "$dir"; done
}

# remove DIR: also what a user namespace wrote under the user's other ids.
remove() {
	[[ -e $1 ]] || return 0
	if ((EUID)) && [[ -z $IN_WORKSHOP ]]; then
		unshare --user --map-root-user --map-auto rm -rf --one-file-system "$1"
	else
		rm -rf --one-file-system "$1"
	fi
}

workshop() { "$ROOT/scripts/workshop" "$@"; }
# In the workshop: /cache for $CACHE, /rust-pmu for $ROOT.
inside() {
	case $1 in
	"$CACHE" | "$CACHE"/*) printf '/cache%s' "${1#"$CACHE"}" ;;
	"$ROOT" | "$ROOT"/*) printf '/rust-pmu%s' "${1#"$ROOT"}" ;;
	*) printf '%s' "$1" ;;
	esac
}
