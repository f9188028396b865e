/** How consumers of the outbox stand, in the words of the command line: what is wrong with one, and what to do about it. */
import { setTimeout as delay } from 'node:timers/promises';
import type { ClientBase, Pool } from 'pg';
import { type ConsumerState, progressOf, readConsumers } from '../store/consumer-admin.js';
import { timeText } from './answers.js';
import { count } from './progress.js';

/** A holder that is alive raises its beat about once a second. */
const BEAT_WAIT_MS = 2_500;
const BEAT_LOOK_MS = 100;
/** So long a row may wait before it is worth a word. */
const LAG_SECONDS_MAX = 60;

export interface Watched extends ConsumerState {
  /** A node with the role worker is at it right now. */
  readonly worked: boolean;
}

/** Looks until it is known of each whether anybody works on it. */
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

/** In a word or two. */
export function stateText(state: Watched): string {
  const { pausedAt, behind, failingSince, worked, rebuild, headSeq, lagRows } = state;
  if (pausedAt !== null) return `paused since ${timeText(pausedAt)}`;
  if (rebuild !== undefined && (worked || rebuild.startedAt === null)) {
    const { phase, percent } = progressOf(rebuild, headSeq);
    return phase === 'waiting' ? 'to be rebuilt' : `rebuilt: ${phase}, ${percent} %`;
  }
  if (!worked) return 'nobody works on it';
  if (failingSince !== null) return `fails since ${timeText(failingSince)}`;
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
        text: `${consumer} is paused since ${timeText(pausedAt)}: it falls behind`,
        advice: `minato consumers resume ${consumer}`,
      };

const isLeftAlone: Check = ({ consumer, worked, lagRows, rebuild, pausedAt }) =>
  worked || pausedAt !== null || (lagRows === 0 && rebuild === undefined)
    ? undefined
    : {
        text: `${consumer} has work to do, and no node with the role worker is running`,
        advice: 'Start one: "minato serve" has all roles, "minato serve --roles worker" only this one.',
      };

const isBehind: Check = ({ consumer, behind, rebuild, lastSeq }) =>
  !behind
    ? undefined
    : {
        text: `${consumer} is further behind (at ${count(lastSeq)}) than the outbox reaches`,
        advice:
          rebuild === undefined
            ? `It is rebuilt once a node works on it; or ask for it: minato consumers rebuild ${consumer} --wait`
            : `It is being rebuilt; watch it: minato consumers rebuild ${consumer} --wait`,
      };

const isFailing: Check = ({ consumer, error, failingSince }) =>
  failingSince === null
    ? undefined
    : {
        text: `${consumer} fails since ${timeText(failingSince)}: ${error ?? 'for no known reason'}`,
        advice: `It tries again by itself. Look at the log of the node; when what it keeps is broken: minato consumers rebuild ${consumer}`,
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
        text: `${consumer} lags ${rowsText(lagRows)}, ${durationText(lagSeconds)}, at ${Math.round(rowsPerSecond)} rows a second`,
        advice: 'Wait after an import or an outage; else give the machine or PostgreSQL more to work with.',
      };

const hasLetters: Check = ({ consumer, deadLetters }) =>
  deadLetters === 0
    ? undefined
    : {
        text: `${consumer} could not take ${rowsText(deadLetters)}`,
        advice: `See why: minato consumers dead-letters ${consumer}; then try them again: minato consumers retry ${consumer} --all`,
      };

const CHECKS: readonly Check[] = [isPaused, isLeftAlone, isBehind, isFailing, isLagging, hasLetters];

export function problemsOf(state: Watched): Problem[] {
  return CHECKS.flatMap((check) => check(state) ?? []);
}
