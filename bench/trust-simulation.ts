/**
 * What it takes to sink somebody: an honest community of 200 over 60 days, then attacks on one of its members, each on a copy of it.
 * Gives the table of docs/trust.md: `node --import tsx bench/trust-simulation.ts`.
 */
import { fileURLToPath } from 'node:url';
import { settingsFrom } from '../src/core/settings.js';
import { rankOf, type TrustSettings } from '../src/core/trust.js';
import { TrustModel } from './trust-model.js';

const DAY_MS = 86_400_000;
const START = 1_700_000_000_000;
const ATTACK = START + 60 * DAY_MS;

export interface Outcome {
  readonly attack: string;
  readonly reporters: number;
  /** Of all reports together. */
  readonly weight: number;
  readonly risk: number;
  readonly rank: number;
}

/** Mulberry32: the same numbers in every run. */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const people = (name: string, count: number) => Array.from({ length: count }, (_, at) => `${name} ${at}`);

export interface SimulationOptions {
  readonly seed?: number;
  readonly members?: number;
  /** Of each crowd, from small to large. */
  readonly crowds?: readonly number[];
}

class Simulation {
  readonly random: () => number;
  readonly members: readonly string[];

  constructor(
    readonly seed: number,
    members: number,
  ) {
    this.random = chance(seed);
    this.members = people('member', members);
  }

  private pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.random() * items.length)]!;
  }

  /** Members come over 30 days and talk with a few others each day; some are lively, most are quiet. */
  honest(settings: TrustSettings): TrustModel {
    const model = new TrustModel(settings);
    const came = new Map(this.members.map((one) => [one, START + this.random() * 30 * DAY_MS]));
    const lively = new Map(this.members.map((one) => [one, this.random() ** 2 * 3]));
    for (const [one, at] of came) model.see(one, at);
    for (let day = 0; day < 60; day += 1) {
      for (const author of this.members) {
        const at = START + (day + this.random()) * DAY_MS;
        if (at < came.get(author)! || this.random() > lively.get(author)!) continue;
        const named = this.pick(this.members.filter((one) => came.get(one)! < at && one !== author));
        model.contact({ author, named: named ?? author, kind: this.pick([1, 1, 6, 7]), at });
      }
    }
    return model;
  }

  /** Keys that came so many days before the attack, and talk with one another from then on. */
  crowd(model: TrustModel, size: number, days: number, talks: boolean): string[] {
    const crowd = people('crowd', size);
    for (const one of crowd) {
      const came = ATTACK - days * DAY_MS;
      model.see(one, came);
      if (!talks) continue;
      for (let day = 0; day < days; day += 1)
        for (let posts = 0; posts < 5; posts += 1) {
          const at = came + (day + this.random()) * DAY_MS;
          model.contact({ author: one, named: this.pick(crowd), kind: 1, at });
        }
    }
    return crowd;
  }
}

/** The one who is attacked has been there from early on. */
const TARGET = 'member 0';

export function simulate(options: SimulationOptions = {}): Outcome[] {
  const { seed = 7_447, members = 200, crowds = [10, 100, 1_000] } = options;
  const outcomes: Outcome[] = [];
  const attack = (
    name: string,
    gather: (simulation: Simulation, model: TrustModel) => readonly string[],
    changed: Partial<TrustSettings> = {},
  ) => {
    const simulation = new Simulation(seed, members);
    const model = simulation.honest(settingsFrom(new Map(Object.entries(changed))));
    const reporters = gather(simulation, model);
    for (const reporter of reporters) model.report(reporter, TARGET, ATTACK);
    const risk = model.risk(TARGET, ATTACK);
    const weight = model.reports.reduce((sum, report) => sum + report.weight, 0);
    outcomes.push({
      attack: name,
      reporters: reporters.length,
      weight,
      risk,
      rank: rankOf('report-based', risk),
    });
  };
  const established = (simulation: Simulation, model: TrustModel, count: number) =>
    simulation.members.filter((one) => one !== TARGET && model.standing(one, ATTACK) >= 0.9).slice(0, count);

  attack('nobody', () => []);
  for (const size of crowds)
    attack(`a crowd of ${size} keys of today`, (simulation, model) =>
      simulation.crowd(model, size, 0, false),
    );
  for (const size of crowds)
    attack(`a crowd of ${size} that has talked among itself for a week`, (simulation, model) =>
      simulation.crowd(model, size, 7, true),
    );
  attack(`a crowd of ${crowds.at(-1)} that has talked among itself for four weeks`, (simulation, model) =>
    simulation.crowd(model, crowds.at(-1)!, 28, true),
  );
  attack('a crowd of 10 that has talked among itself for six weeks', (simulation, model) =>
    simulation.crowd(model, 10, 42, true),
  );
  attack(
    'the same, where only approved members are heard',
    (simulation, model) => simulation.crowd(model, 10, 42, true),
    { 'trust.reporters': 'approved' },
  );
  attack('3 established members, hijacked', (simulation, model) => established(simulation, model, 3));
  attack('5 established members', (simulation, model) => established(simulation, model, 5));
  attack('10 established members', (simulation, model) => established(simulation, model, 10));
  attack('10 members, whoever they are', ({ members: all }) => all.slice(1, 11));
  return outcomes;
}

export function tableOf(outcomes: readonly Outcome[]): string {
  const rows = outcomes.map(
    ({ attack, reporters, weight, risk, rank }) =>
      `| ${attack} | ${reporters} | ${weight.toFixed(1)} | ${risk.toFixed(2)} | ${rank} |`,
  );
  return ['| who reports | reporters | weight | risk | rank |', '|---|---|---|---|---|', ...rows].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.log(tableOf(simulate()));
