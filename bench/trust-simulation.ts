/**
 * What it takes to change somebody's scores: an honest community grows for four months, then attacks run,
 * each on a copy of it. It uses the rules of the node (`src/trust/rules.ts`) on a model in memory. Prints the
 * tables of docs/trust.md:
 *   npm run simulate:trust [-- --seed 7447 --members 120]
 */
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { settingsFrom } from '../src/communities/rules-settings.js';
import { type Claim, rankOf, type TrustSettings } from '../src/trust/rules.js';
import { TrustModel } from './trust-model.js';

const DAY_MS = 86_400_000;
const START = 1_700_000_000_000;
/** The age of the community when it is attacked. */
const AGE_DAYS = 120;
const ATTACK = START + AGE_DAYS * DAY_MS;

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
  /** The size of each crowd, from small to large. */
  readonly crowds?: readonly number[];
  readonly settings?: Partial<TrustSettings>;
}

/**
 * The honest community: half of its members join in the first month, the others one by one. Each talks with a
 * circle of friends.
 */
class Simulation {
  readonly random: () => number;
  readonly members: readonly string[];
  readonly model: TrustModel;
  private readonly came = new Map<string, number>();

  constructor(options: Required<SimulationOptions>) {
    this.random = chance(options.seed);
    this.members = people('member', options.members);
    this.model = new TrustModel(settingsFrom(new Map(Object.entries(options.settings))), START);
    const founders = Math.ceil(options.members / 2);
    for (const [at, member] of this.members.entries()) {
      const day = at < founders ? (30 * at) / founders : 30 + ((AGE_DAYS - 30) * (at - founders)) / founders;
      this.came.set(member, START + day * DAY_MS);
      this.model.see(member, START + day * DAY_MS);
    }
  }

  pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.random() * items.length)]!;
  }

  /** Runs day by day. Most messages get an answer; some name several people. */
  grow(eachDay: (day: number) => void = () => undefined): void {
    const friends = new Map(this.members.map((one) => [one, this.friendsOf(one)]));
    const lively = new Map(this.members.map((one) => [one, 0.1 + this.random() ** 2]));
    for (let day = 0; day < AGE_DAYS; day += 1) {
      const at = START + day * DAY_MS;
      for (const author of this.members) {
        if (at < this.came.get(author)! || this.random() > lively.get(author)!) continue;
        const here = friends.get(author)!.filter((friend) => this.came.get(friend)! <= at);
        for (let notes = 0; notes < 3 && here.length > 0; notes += 1) this.talk(author, this.pick(here), at);
      }
      this.model.review(at + DAY_MS - 1);
      eachDay(day);
    }
  }

  /** A circle of 16 neighbours and a few from anywhere. */
  private friendsOf(member: string): string[] {
    const at = this.members.indexOf(member);
    const near = Array.from({ length: 16 }, (_, step) => {
      const away = (step >> 1) + 1;
      return this.members[(at + (step % 2 === 0 ? away : this.members.length - away)) % this.members.length]!;
    });
    return [...near, ...Array.from({ length: 4 }, () => this.pick(this.members))].filter(
      (one) => one !== member,
    );
  }

  private talk(author: string, named: string, at: number): void {
    const shared = this.random() < 0.2 ? 2 : 1;
    this.model.contact({ author, named, kind: this.pick([1, 1, 1, 6, 7]), at: at + 1, shared });
    if (this.random() < 0.7)
      this.model.contact({ author: named, named: author, kind: this.pick([1, 1, 7]), at: at + 2, shared });
  }

  established(except: readonly string[] = []): string[] {
    return this.members.filter((one) => !except.includes(one) && this.model.standing(one, ATTACK) > 0.9);
  }

  /** Two people talk to each other on each of `days` days before the attack. */
  chat(one: string, other: string, days: number, shared = 1): void {
    for (let day = 1; day <= days; day += 1) {
      const at = ATTACK - day * DAY_MS;
      this.model.contact({ author: one, named: other, kind: 1, at, shared });
      this.model.contact({ author: other, named: one, kind: 1, at: at + 1, shared: 1 });
    }
  }

  /** Keys that joined `days` days before the attack. Each talks with ten others of the crowd every day. */
  crowd(size: number, days: number): string[] {
    const crowd = people('crowd', size);
    for (const one of crowd) this.model.see(one, ATTACK - days * DAY_MS);
    for (const [at, one] of crowd.entries())
      for (let away = 1; away <= 10 && size > 1; away += 1)
        this.chat(one, crowd[(at + away) % size]!, Math.min(days, 29));
    return crowd;
  }

  /** The daily review, day after day, while nothing else happens. */
  reviewAll(): void {
    for (let day = 29; day >= 0; day -= 1) this.model.review(ATTACK - day * DAY_MS);
  }
}

export interface Growth {
  readonly day: number;
  readonly members: number;
  readonly established: number;
  /** The median of members older than a month, and of those who joined less than a month ago. */
  readonly density: number;
  readonly newcomers: number;
}

export interface Outcome {
  readonly attack: string;
  readonly claim: Claim;
  /** Keys of the attacker, and established members who help, knowingly or not. */
  readonly keys: number;
  readonly helpers: number;
  readonly before: number;
  readonly after: number;
}

const TARGET = 'member 1';
const SPAMMER = 'spammer';

const complete = (options: SimulationOptions): Required<SimulationOptions> => ({
  seed: 7_447,
  members: 120,
  crowds: [10, 100, 1_000],
  settings: {},
  ...options,
});

export function simulateGrowth(options: SimulationOptions = {}): Growth[] {
  const simulation = new Simulation(complete(options));
  const { model, members } = simulation;
  const growth: Growth[] = [];
  const median = (values: readonly number[]) =>
    [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0;
  simulation.grow((day) => {
    if ((day + 1) % 30 !== 0) return;
    const now = START + (day + 1) * DAY_MS;
    const seenFor = (one: string) => now - model.firstSeen.get(one)!;
    const here = members.filter((one) => seenFor(one) >= 0);
    const rank = (one: string) => rankOf('communication-density', model.density(one, now));
    growth.push({
      day: day + 1,
      members: here.length,
      established: here.filter((one) => model.standing(one, now) > 0).length,
      density: median(here.filter((one) => seenFor(one) >= 30 * DAY_MS).map(rank)),
      newcomers: median(here.filter((one) => seenFor(one) < 30 * DAY_MS).map(rank)),
    });
  });
  return growth;
}

interface Attacked {
  readonly keys: number;
  readonly helpers: number;
}

export function simulate(options: SimulationOptions = {}): Outcome[] {
  const all = complete(options);
  const outcomes: Outcome[] = [];
  const few = settingsFrom(new Map(Object.entries(all.settings)))['trust.establishedMin'];

  const attack = (name: string, claim: Claim, subject: string, run: (s: Simulation) => Attacked) => {
    const simulation = new Simulation(all);
    simulation.grow();
    const { model } = simulation;
    model.see(SPAMMER, ATTACK - 40 * DAY_MS);
    const rank = () =>
      rankOf(claim, claim === 'report-based' ? model.risk(subject, ATTACK) : model.density(subject, ATTACK));
    const before = rank();
    const { keys, helpers } = run(simulation);
    outcomes.push({ attack: name, claim, keys, helpers, before, after: rank() });
  };
  /** The reporters report the attacked member. */
  const sink = (name: string, gather: (s: Simulation) => { reporters: readonly string[]; helpers: number }) =>
    attack(name, 'report-based', TARGET, (simulation) => {
      const { reporters, helpers } = gather(simulation);
      simulation.reviewAll();
      for (const reporter of reporters) simulation.model.report(reporter, TARGET, ATTACK);
      return { keys: reporters.filter((one) => !simulation.members.includes(one)).length, helpers };
    });
  const lift = (name: string, run: (s: Simulation) => Attacked) =>
    attack(name, 'communication-density', SPAMMER, (simulation) => {
      const attacked = run(simulation);
      simulation.reviewAll();
      return attacked;
    });
  /** Keys that are old enough, each with contacts to these members on ten days. */
  const infiltrate = (simulation: Simulation, helpers: readonly string[]): string[] => {
    const crowd = simulation.crowd(50, 60);
    for (const one of crowd) for (const helper of helpers) simulation.chat(one, helper, 10);
    return crowd;
  };

  for (const size of all.crowds)
    sink(`${size} keys of today report`, (s) => ({ reporters: s.crowd(size, 0), helpers: 0 }));
  for (const size of all.crowds)
    sink(`${size} keys that have talked among themselves for two months report`, (s) => ({
      reporters: s.crowd(size, 60),
      helpers: 0,
    }));
  sink(`the same ${all.crowds[0]}, who came in the founding month, report`, (s) => ({
    reporters: s.crowd(all.crowds[0]!, AGE_DAYS - 10),
    helpers: all.crowds[0]!,
  }));
  sink('25 old keys, once welcomed in one note by each of 5 members, report', (s) => {
    const crowd = s.crowd(25, 60);
    for (const member of s.established([TARGET]).slice(0, 5))
      for (const one of crowd) {
        s.model.contact({ author: member, named: one, kind: 1, at: ATTACK - DAY_MS, shared: 25 });
        s.model.contact({ author: one, named: member, kind: 1, at: ATTACK - DAY_MS / 2 });
      }
    return { reporters: crowd, helpers: 0 };
  });
  sink(`${few - 1} established members, hijacked, report`, (s) => {
    const helpers = s.established([TARGET]).slice(0, few - 1);
    return { reporters: helpers, helpers: helpers.length };
  });
  for (const count of [few - 1, few])
    sink(`50 keys in talk with ${count} members for two months report, and so do these`, (s) => {
      const helpers = s.established([TARGET]).slice(0, count);
      return { reporters: [...infiltrate(s, helpers), ...helpers], helpers: helpers.length };
    });
  sink('10 established members report', (s) => {
    const helpers = s.established([TARGET]).slice(0, 10);
    return { reporters: helpers, helpers: helpers.length };
  });

  lift('500 new keys and a spammer praise each other', (s) => {
    const crowd = s.crowd(500, 0);
    for (const one of crowd) s.chat(SPAMMER, one, 1);
    return { keys: crowd.length, helpers: 0 };
  });
  lift('100 old keys and a spammer praise each other for a month', (s) => {
    const crowd = s.crowd(100, 60);
    for (const one of crowd) s.chat(SPAMMER, one, 29);
    return { keys: crowd.length, helpers: 0 };
  });
  lift('a spammer names 20 members in one note, every day', (s) => {
    for (let day = 1; day < 30; day += 1)
      for (const named of s.members.slice(0, 20))
        s.model.contact({ author: SPAMMER, named, kind: 1, at: ATTACK - day * DAY_MS, shared: 20 });
    return { keys: 0, helpers: 0 };
  });
  lift('a spammer writes to 20 members every day; each answers once', (s) => {
    for (const named of s.established().slice(0, 20)) {
      s.chat(SPAMMER, named, 1);
      for (let day = 2; day < 30; day += 1)
        s.model.contact({ author: SPAMMER, named, kind: 1, at: ATTACK - day * DAY_MS });
    }
    return { keys: 0, helpers: 20 };
  });
  for (const count of [few - 1, 20])
    lift(`${count} established members talk with a spammer every day`, (s) => {
      const helpers = s.established().slice(0, count);
      for (const helper of helpers) s.chat(SPAMMER, helper, 29);
      return { keys: 0, helpers: helpers.length };
    });
  return outcomes;
}

export function growthTable(growth: readonly Growth[]): string {
  const rows = growth.map(
    ({ day, members, established, density, newcomers }) =>
      `| ${day} | ${members} | ${established} | ${density} | ${newcomers} |`,
  );
  return [
    '| day | members | established | density rank, a month or older (median) | newcomers |',
    '|---|---|---|---|---|',
    ...rows,
  ].join('\n');
}

export function attackTable(outcomes: readonly Outcome[]): string {
  const rows = outcomes.map(
    ({ attack, claim, keys, helpers, before, after }) =>
      `| ${attack} | ${claim} | ${keys} | ${helpers} | ${before} → ${after} | ${Math.abs(after - before)} |`,
  );
  return ['| attack | claim | keys | helpers | rank | points |', '|---|---|---|---|---|---|', ...rows].join(
    '\n',
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: { seed: { type: 'string', default: '7447' }, members: { type: 'string', default: '120' } },
  });
  const options = { seed: Number(values.seed), members: Number(values.members) };
  console.log(`${growthTable(simulateGrowth(options))}\n\n${attackTable(simulate(options))}`);
}
