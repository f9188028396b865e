/** What a run has done, kept in a file: a run that was stopped continues after its last whole world. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import type { RoundResult } from './run-world.js';

export interface Failure {
  readonly round: number;
  readonly invariant: string;
  readonly what: string;
}

export interface Totals {
  readonly seed: number;
  /** The round to begin with. */
  next: number;
  rounds: number;
  seconds: number;
  events: number;
  faults: Record<string, number>;
  skipped: Record<string, number>;
  operations: Record<string, number>;
  violations: Failure[];
}

export const newTotals = (seed: number, next: number): Totals => ({
  seed,
  next,
  rounds: 0,
  seconds: 0,
  events: 0,
  faults: {},
  skipped: {},
  operations: {},
  violations: [],
});

export function addRound(totals: Totals, at: number, result: RoundResult): void {
  totals.rounds += 1;
  totals.seconds += result.seconds;
  totals.events += result.events;
  addAll(totals.faults, result.faults);
  addAll(totals.skipped, result.skipped);
  addAll(totals.operations, result.operations);
  for (const { invariant, what } of result.violations) totals.violations.push({ round: at, invariant, what });
}

function addAll(to: Record<string, number>, from: ReadonlyMap<string, number>): void {
  for (const [name, count] of from) to[name] = (to[name] ?? 0) + count;
}

export function saveTotals(file: string, totals: Totals): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(`${file}.new`, `${JSON.stringify(totals, undefined, 2)}\n`);
  renameSync(`${file}.new`, file);
}

export function loadTotals(file: string): Totals {
  if (!existsSync(file)) throw new Error(`there is nothing to resume: ${file} does not exist`);
  return JSON.parse(readFileSync(file, 'utf8')) as Totals;
}
