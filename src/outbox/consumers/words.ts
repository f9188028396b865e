/**
 * Describes the state of consumers for the command line: their problems, and what to do about them.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientBase, Pool } from 'pg';
import { timeText } from '../../cli/answers.js';
import { count } from '../../cli/progress.js';
import { type ConsumerState, progressOf, readConsumers } from './admin.sql.js';

/** A holder that is alive raises its beat every 2 s. */
const BEAT_WAIT_MS = 5_000;
const BEAT_LOOK_MS = 100;
/** A larger lag is a problem. */
const LAG_SECONDS_MAX = 60;

export interface Watched extends ConsumerState {
  /** A node with the role worker runs it now. */
  readonly worked: boolean;
}

/** Watches the beats until it is known of each consumer whether a node runs it. */
export async function watchConsumers(db: ClientBase | Pool, now: () => number): Promise<Watched[]> {
  const first = new Map((await readConsumers(db, now())).map(({ consumer, beat }) => [consumer, beat]));
  const until = performance.now() + BEAT_WAIT_MS;
  for (;;) {
    const states = await readConsumers(db, now());
    const watched = states.map((state) => ({
      ...state,
      worked: state.held && state.beat !== first.get(state.consumer),
    }));
    const isKnown = watched.every(({ held, worked }) => worked || !held);
    if (isKnown || performance.now() > until) return watched;
    await delay(BEAT_LOOK_MS);
  }
}

/** A few words. */
export function stateText(state: Watched): string {
  const { pausedAt, behind, failingSince, worked, rebuild, headSeq, lagRows } = state;
  if (pausedAt !== null) return `paused since ${timeText(pausedAt)}`;
  if (rebuild !== undefined && (worked || rebuild.startedAt === null)) {
    const { phase, percent } = progressOf(rebuild, headSeq);
    return phase === 'waiting' ? 'to be rebuilt' : `rebuild: ${phase}, ${percent} %`;
  }
  if (!worked) return 'no node runs it';
  if (failingSince !== null) return `failing since ${timeText(failingSince)}`;
  if (behind) return 'behind the outbox';
  return lagRows === 0 ? 'up to date' : 'following';
}

export function lagText({ lagRows, lagSeconds }: Pick<ConsumerState, 'lagRows' | 'lagSeconds'>): string {
  return lagRows === 0 ? 'none' : `${rowsText(lagRows)}, ${durationText(lagSeconds)}`;
}

export const rowsText = (rows: number) => `${count(rows)} ${rows === 1 ? 'row' : 'rows'}`;

function durationText(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
}

export interface Problem {
  readonly text: string;
  /** What to do about it. */
  readonly advice: string;
}

type Check = (state: Watched) => Problem | undefined;

const isPaused: Check = ({ consumer, pausedAt }) =>
  pausedAt === null
    ? undefined
    : {
        text: `${consumer} has been paused since ${timeText(pausedAt)} and falls behind`,
        advice: `minato consumers resume ${consumer}`,
      };

const isNotRun: Check = ({ consumer, worked, lagRows, rebuild, pausedAt }) =>
  worked || pausedAt !== null || (lagRows === 0 && rebuild === undefined)
    ? undefined
    : {
        text: `${consumer} has work to do, but no node with the role worker is running`,
        advice: 'Start one: "minato serve" has all roles, "minato serve --roles worker" only this one.',
      };

const isBehind: Check = ({ consumer, behind, rebuild, lastSeq }) =>
  !behind
    ? undefined
    : {
        text: `${consumer} is at ${count(lastSeq)}, and the outbox no longer has the rows after it`,
        advice:
          rebuild === undefined
            ? `The next node that runs it rebuilds it; or now: minato consumers rebuild ${consumer} --wait`
            : `It is being rebuilt; to watch: minato consumers rebuild ${consumer} --wait`,
      };

const isFailing: Check = ({ consumer, error, failingSince }) =>
  failingSince === null
    ? undefined
    : {
        text: `${consumer} has been failing since ${timeText(failingSince)}: ${error ?? 'unknown error'}`,
        advice:
          'It keeps trying. Read the log of the node; if its data is broken: ' +
          `minato consumers rebuild ${consumer}`,
      };

const isLagging: Check = ({
  consumer,
  lagRows,
  lagSeconds,
  rowsPerSecond,
  pausedAt,
  failingSince,
  worked,
}) =>
  lagSeconds <= LAG_SECONDS_MAX || pausedAt !== null || failingSince !== null || !worked
    ? undefined
    : {
        text:
          `${consumer} lags ${rowsText(lagRows)}, ${durationText(lagSeconds)}, ` +
          `at ${Math.round(rowsPerSecond)} rows a second`,
        advice:
          'After an import or an outage, wait. Otherwise give the machine or PostgreSQL more resources.',
      };

const hasLetters: Check = ({ consumer, deadLetters }) =>
  deadLetters === 0
    ? undefined
    : {
        text: `${consumer} could not apply ${rowsText(deadLetters)}`,
        advice:
          `To see why: minato consumers dead-letters ${consumer}; ` +
          `to retry: minato consumers retry ${consumer} --all`,
      };

const CHECKS: readonly Check[] = [isPaused, isNotRun, isBehind, isFailing, isLagging, hasLetters];

export function problemsOf(state: Watched): Problem[] {
  return CHECKS.flatMap((check) => check(state) ?? []);
}
