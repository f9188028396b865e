/**
 * Erasures as commands print them: a line of a list, one in full, what would be deleted, how one has ended.
 */
import { npubEncode } from 'nostr-tools/nip19';
import { timeText } from '../cli/answers.js';
import { count } from '../cli/progress.js';
import type { Awaited, Unacknowledged } from '../outbox/rules-follower.js';
import { type Erasure, shownStage } from './erasures.sql.js';
import { sum } from './rules.js';
import type { Collected } from './stores/deletion-registry.js';

const HEADINGS = ['before', 'deleted', 'otherwise', 'after'];
const rowsText = (rows: number) => `${count(rows)} ${rows === 1 ? 'row' : 'rows'}`;
const storesText = (stores: number) => `${count(stores)} ${stores === 1 ? 'store' : 'stores'}`;

/** Whom it is about; the public key is known until the end. */
export function aboutText({ type, slug, pubkey }: Erasure): string {
  if (type === 'community') return `community ${slug}`;
  return `${pubkey === null ? 'a member' : npubEncode(pubkey)} of ${slug}`;
}

export function lineOf(erasure: Erasure): string {
  const { erasureId, requestedAt, cause, deleted } = erasure;
  const words = [shownStage(erasure).padEnd(9), cause.padEnd(8), rowsText(sum(deleted)).padStart(12)];
  return [erasureId, timeText(requestedAt), ...words, aboutText(erasure)].join('  ');
}

export function manifestOf(what: string, { succeeded, failed }: Collected<number>): string {
  const held = [...succeeded].filter(([, rows]) => rows > 0);
  const rows = held.reduce((all, [, one]) => all + one, 0);
  const all = storesText(succeeded.size + failed.size);
  return [
    `What is held about ${what}:`,
    ...held.map(([name, of]) => `  ${name.padEnd(42)} ${count(of).padStart(10)}`),
    ...[...failed].map(([name, why]) => `  ${name.padEnd(42)}    unknown: ${why}`),
    `  ${rowsText(rows)} in ${count(held.length)} of ${all}\n`,
  ].join('\n');
}

export function fullText(erasure: Erasure): string {
  const { holdReason, counted, added, deleted, otherwise, verified, kept } = erasure;
  const times: [string, number | null][] = [
    ['asked for', erasure.requestedAt],
    ['grace until', erasure.graceUntil > erasure.requestedAt ? erasure.graceUntil : null],
    ['fenced', erasure.fencedAt],
    ['counted', erasure.countedAt],
    ['held since', erasure.heldAt],
    ['failed', erasure.failedAt],
    ['completed', erasure.completedAt],
  ];
  const before = (name: string) => {
    const first = counted[name];
    return first === undefined ? undefined : first + (added[name] ?? 0);
  };
  const names = Object.keys({ ...counted, ...deleted, ...verified }).filter(
    (name) => (before(name) ?? 1) > 0 || (deleted[name] ?? 0) > 0 || (verified[name] ?? 0) > 0,
  );
  const column = (value: number | undefined) => (value === undefined ? '-' : count(value)).padStart(10);
  return [
    `${erasure.erasureId}  ${shownStage(erasure)}`,
    `  ${'about'.padEnd(12)} ${aboutText(erasure)}`,
    `  ${'asked by'.padEnd(12)} ${erasure.cause}`,
    ...times.flatMap(([name, at]) => (at === null ? [] : [`  ${name.padEnd(12)} ${timeText(at)}`])),
    ...(holdReason === null ? [] : [`  ${'why'.padEnd(12)} ${JSON.stringify(holdReason)}`]),
    ...(names.length === 0
      ? []
      : [`  ${'store'.padEnd(42)} ${HEADINGS.map((name) => name.padStart(10)).join(' ')}`]),
    ...names.map(
      (name) =>
        `  ${name.padEnd(42)} ` +
        [before(name), deleted[name] ?? 0, otherwise[name] ?? 0, verified[name]].map(column).join(' '),
    ),
    ...Object.entries(kept).map(
      ([name, { rows, until, why }]) => `  kept: ${name}, ${rowsText(rows)} until ${timeText(until)}: ${why}`,
    ),
    ...erasure.waits.map((follower) => `  waits for: ${waitText(follower)}`),
    ...erasure.unacknowledged.map((follower) => `  not acknowledged: ${followerText(follower)}`),
    ...failureLines(erasure),
    '',
  ].join('\n');
}

const followerText = ({ name, acknowledgedSeq, neededSeq }: Unacknowledged) =>
  `follower ${name}, which is at ${count(acknowledgedSeq)} of ${count(neededSeq)}`;
export const waitText = (follower: Awaited) => `${followerText(follower)}, until ${timeText(follower.until)}`;

function failureLines({ failures }: Erasure): string[] {
  return Object.entries(failures).map(([name, why]) => `  failed: ${name}: ${why}`);
}

/** How a run of it ended; `ok` when the operator has nothing left to do. */
export function endOf(erasure: Erasure): { readonly ok: boolean; readonly text: string } {
  const { erasureId, deleted, graceUntil, holdReason } = erasure;
  const stage = shownStage(erasure);
  const gone = Object.values(deleted).filter((rows) => rows > 0).length;
  switch (stage) {
    case 'completed':
      return {
        ok: true,
        text: [
          `erased: ${rowsText(sum(deleted))} from ${storesText(gone)}; every store counts 0 now\n`,
          ...erasure.unacknowledged.map(
            (follower) => `not acknowledged by ${followerText(follower)}; the certificate says so\n`,
          ),
        ].join(''),
      };
    case 'grace':
      return {
        ok: true,
        text: `it waits until ${timeText(graceUntil)}; to cancel: minato erase cancel ${erasureId}\n`,
      };
    case 'held':
      return {
        ok: false,
        text: `it is held (${holdReason}); to continue: minato erase release ${erasureId}\n`,
      };
    case 'failed':
      return {
        ok: false,
        text:
          `not everything was erased:\n${failureLines(erasure).join('\n')}\n` +
          `Fix that store, then: minato erase retry ${erasureId}\n`,
      };
    case 'cancelled':
      return { ok: false, text: 'it was cancelled; nothing was erased\n' };
    default:
      return {
        ok: false,
        text: [
          ...erasure.waits.map((follower) => `it waits for ${waitText(follower)}\n`),
          `it is at the stage "${stage}"; a running node continues it, or: minato jobs run erase\n`,
        ].join(''),
      };
  }
}
