/** The habits of this code, held by a test: what may import what, where SQL stands, how files and things are called. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const LINES_MAX = 600;
/** A test file may list more cases than a program file may hold duties. */
const TEST_LINES_MAX = 1_000;

interface Source {
  /** From the root of the project, with `/`. */
  readonly path: string;
  readonly text: string;
  /** Without comments, so that words in prose are not taken for code. */
  readonly code: string;
}

function filesUnder(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    if (entry.name.startsWith('.')) return [];
    return entry.isDirectory() ? filesUnder(path) : [path];
  });
}

function read(path: string): Source {
  const text = readFileSync(join(ROOT, path), 'utf8');
  return { path, text, code: withoutComments(text) };
}

function withoutComments(text: string): string {
  // The quotes and the colon keep what only looks like a comment: `'/*'`, `https://`.
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|[\s;,{}()])\/\/.*$/gm, '$1');
}

const isTest = ({ path }: Source) => path.endsWith('.test.ts');
const typescript = ['src', 'test', 'bench']
  .flatMap(filesUnder)
  .filter((path) => path.endsWith('.ts'))
  .map(read);
const sources = typescript.filter((file) => file.path.startsWith('src/') && !isTest(file));
const migrations = filesUnder('migrations').map(read);

/** The paths of the files that break a rule; a test expects none. */
const breaking = (files: readonly Source[], rule: (file: Source) => boolean) =>
  files.filter(rule).map((file) => file.path);

// ── Layers ────────────────────────────────────────────────────────────────────────────────────────────────────────

const BASE = ['core', 'config', 'roles', 'in-time', 'log', 'metrics'];
const WRITING = [
  'admission',
  'seen-counts',
  'communities',
  'lane',
  'subject-key',
  'wakeups',
  'store',
  'verify',
  'postgres',
];

/** From top to bottom, each with what it may import. A layer may always import itself. */
const LAYERS: Record<string, readonly string[]> = {
  cli: [
    'node',
    'erase-now',
    'writer',
    'version',
    'audit',
    'prepare',
    'jobs',
    'services',
    'keys',
    'erasure',
    'relay',
    'limits',
    'admission',
    'communities',
    'lane',
    'subject-key',
    'store',
    'verify',
    'postgres',
    ...BASE,
  ],
  node: [
    'writer',
    'erase-now',
    'version',
    'prepare',
    'key-sharing',
    'audit',
    'sessions',
    'jobs',
    'services',
    'keys',
    'orders',
    'erasure',
    'relay',
    'membership',
    'api',
    'http',
    'rights',
    'limits',
    'addresses',
    'client-address',
    ...WRITING,
    ...BASE,
  ],
  'erase-now': ['services', 'jobs', 'erasure', 'keys', 'store', 'log', 'metrics'],
  writer: [
    'prepare',
    'key-sharing',
    'audit',
    'erasure',
    'keys',
    'limits',
    'addresses',
    'version',
    'room',
    ...WRITING,
    ...BASE,
  ],
  prepare: ['store', 'postgres', ...BASE],
  jobs: [
    'erasure',
    'audit',
    'sessions',
    'keys',
    'limits',
    'room',
    'communities',
    'lane',
    'store',
    'postgres',
    ...BASE,
  ],
  services: [
    'turns',
    'keys',
    'subject-key',
    'orders',
    'lane',
    'communities',
    'wakeups',
    'store',
    'postgres',
    ...BASE,
  ],
  orders: ['lane', 'store', 'core'],
  relay: [
    'version',
    'http',
    'membership',
    'rights',
    'limits',
    'addresses',
    'client-address',
    ...WRITING,
    ...BASE,
  ],
  api: [
    'erasure',
    'audit',
    'sessions',
    'http',
    'rights',
    'limits',
    'addresses',
    'client-address',
    'communities',
    'verify',
    'store',
    ...BASE,
  ],
  erasure: [
    'audit',
    'sessions',
    'redis',
    'limits',
    'keys',
    'communities',
    'lane',
    'subject-key',
    'store',
    'postgres',
    ...BASE,
  ],
  audit: ['store', 'core', 'in-time', 'log', 'config'],
  sessions: ['redis', 'store', 'core', 'log', 'config'],
  membership: ['keys', 'limits', 'communities', 'store', 'core', 'log'],
  keys: ['store', 'core'],
  http: ['client-address', 'core', 'in-time', 'metrics'],
  admission: [
    'turns',
    'seen-counts',
    'limits',
    'addresses',
    'communities',
    'lane',
    'store',
    'verify',
    'core',
    'metrics',
  ],
  room: ['communities', 'lane', 'store', 'postgres', 'core', 'log'],
  rights: ['communities', 'store', 'core', 'log'],
  addresses: ['communities', 'store', 'core'],
  limits: ['redis', 'store', 'core', 'in-time', 'log', 'metrics'],
  redis: ['in-time', 'log'],
  'seen-counts': ['store', 'log'],
  communities: ['blocks', 'door-rules', 'store', 'core', 'log'],
  blocks: ['store', 'core'],
  'door-rules': ['core'],
  'key-sharing': ['store'],
  lane: ['lane-queue', 'subject-key', 'store', 'postgres', 'core', 'in-time', 'log', 'metrics'],
  'lane-queue': [],
  'subject-key': [],
  wakeups: ['store', 'postgres', 'log'],
  store: ['turns', 'postgres', 'core'],
  verify: ['core', 'in-time'],
  postgres: ['core', 'in-time'],
  config: ['core'],
  'client-address': [],
  turns: [],
  roles: [],
  version: [],
  'in-time': [],
  log: [],
  metrics: [],
  core: [],
};

/** `src/relay/server.ts` → `relay`; `src/lane.ts` → `lane`. */
const layerOf = (path: string) => path.split('/')[1]!.replace(/\.[jt]s$/, '');

function importsOf({ code }: Source): string[] {
  const pattern = /(?:\bfrom\s*|\bimport\s*\(?\s*|new URL\()'([^']+)'/g;
  return [...code.matchAll(pattern)].map((match) => match[1]!);
}

function importedLayers(file: Source): string[] {
  return importsOf(file)
    .filter((name) => name.startsWith('.'))
    .map((name) => normalize(join(dirname(file.path), name)))
    .filter((path) => path.startsWith('src/'))
    .map(layerOf);
}

describe('layers', () => {
  it('every file of src is in a layer that is known here', () => {
    expect(breaking(sources, (file) => LAYERS[layerOf(file.path)] === undefined)).toEqual([]);
  });

  it('the layers have no circle', () => {
    const order = Object.keys(LAYERS);
    for (const [layer, below] of Object.entries(LAYERS)) {
      for (const name of below)
        expect(order.indexOf(name), `${layer} → ${name}`).toBeGreaterThan(order.indexOf(layer));
    }
  });

  it('a file imports its own layer and those below, never a sibling or what is above', () => {
    const wrong = sources.flatMap((file) => {
      const layer = layerOf(file.path);
      const bad = importedLayers(file).filter((name) => name !== layer && !LAYERS[layer]?.includes(name));
      return bad.map((name) => `${file.path} → ${name}`);
    });
    expect(wrong).toEqual([]);
  });

  it('the imports are really seen', () => {
    const lane = sources.find((file) => file.path === 'src/lane.ts')!;
    expect(importedLayers(lane)).toEqual(expect.arrayContaining(['core', 'store', 'postgres', 'lane-queue']));
  });

  it('core imports itself, zod, hashes, word stems, characters and linear patterns, and nothing that does I/O', () => {
    const core = sources.filter((file) => layerOf(file.path) === 'core');
    const bad = core.flatMap((file) =>
      importsOf(file)
        .filter(
          (name) =>
            !/^(zod|stemmer|opencc-js\/dict\/\w+|re2js|@noble\/hashes\/\w+\.js|\.\/[a-z0-9-]+\.js)$/.test(
              name,
            ),
        )
        .map((name) => `${file.path} → ${name}`),
    );
    expect(bad).toEqual([]);
    expect(core.length).toBeGreaterThan(5);
  });

  it('core knows no clock, no chance and no environment', () => {
    const impure =
      /\b(Date\b|Math\.random|crypto\.|process\.|console\.|setTimeout|setInterval|fetch\(|performance\.)/;
    const core = sources.filter((file) => layerOf(file.path) === 'core');
    expect(breaking(core, (file) => impure.test(file.code))).toEqual([]);
  });
});

// ── SQL ───────────────────────────────────────────────────────────────────────────────────────────────────────────

const SQL = /\b(SELECT|INSERT|UPDATE|DELETE|ALTER|CREATE)\b/;

describe('SQL', () => {
  it('stands in store and postgres only, but for the lock of the lane', () => {
    const elsewhere = sources.filter((file) => !['store', 'postgres'].includes(layerOf(file.path)));
    const lines = elsewhere.flatMap(({ path, code }) =>
      code
        .split('\n')
        .filter((line) => SQL.test(line))
        .map((line) => `${path}: ${line.trim()}`),
    );
    const isLock = (line: string) => /^src\/lane\.ts: .*SELECT pg_advisory_xact_lock\(/.test(line);
    // What doctor advises the operator to do is a sentence, not a query.
    const isAdvice = (line: string) => /^src\/cli\/doctor\.ts: .*ALTER SYSTEM SET /.test(line);
    const isMethod = (line: string) => /^src\/api\/[\w-]+\.ts: method: 'DELETE',$/.test(line);
    expect(lines.filter((line) => !isLock(line) && !isAdvice(line) && !isMethod(line))).toEqual([]);
  });

  it('is really seen where it may stand', () => {
    expect(breaking(sources, (file) => SQL.test(file.code))).toContain('src/store/query.ts');
  });

  it('never asks the database for the time, except to compare its clock with ours', () => {
    const asks =
      /(?<!performance\.)\bnow\(\)|clock_timestamp|CURRENT_(TIMESTAMP|DATE|TIME)|statement_timestamp/i;
    const store = sources.filter((file) => layerOf(file.path) === 'store');
    expect(breaking(store, (file) => asks.test(file.code))).toEqual(['src/store/health.ts']);
    expect(breaking(migrations, ({ text }) => asks.test(text.replace(/--.*$/gm, '')))).toEqual([]);
  });

  it('migrations are numbered from 1 without holes', () => {
    const names = migrations.map((file) => basename(file.path)).sort();
    expect(names.length).toBeGreaterThan(0);
    names.forEach((name, at) => {
      expect(name).toMatch(new RegExp(`^${String(at + 1).padStart(6, '0')}-[a-z0-9-]+\\.sql$`));
    });
  });

  it('every table of the schema that holds events, or is about an author, has a community (I12, I13)', () => {
    const schema = migrations.map(({ text }) => text.replace(/--.*$/gm, '')).join('\n');
    const tables = [...schema.matchAll(/CREATE (?:UNLOGGED )?TABLE (\w+) \(([\s\S]*?)\n\)/g)];
    const personal = tables.filter(([, , columns]) =>
      /\b(event_id|author|pubkey|payload) \w+/.test(columns!),
    );
    expect(personal.map(([, name]) => name)).toEqual(
      expect.arrayContaining(['events', 'event_dedupe', 'event_heads', 'events_outbox', 'live_bus']),
    );
    const without = personal.filter(([, , columns]) => !/\bcommunity integer NOT NULL/.test(columns!));
    expect(without.map(([, name]) => name)).toEqual([]);
    // Tags are of an event as well, though they name neither it nor its author.
    expect(tables.find(([, name]) => name === 'event_tags')?.[2]).toContain('community integer NOT NULL');
  });
});

// ── Names and shape ───────────────────────────────────────────────────────────────────────────────────────────────

describe('files', () => {
  it('are named in kebab-case', () => {
    const named = /^[a-z0-9]+(-[a-z0-9]+)*(\.test|\.config|\.d)?\.[a-z]+$/;
    const paths = ['src', 'test', 'migrations'].flatMap(filesUnder);
    expect(paths.filter((path) => !named.test(basename(path)))).toEqual([]);
  });

  it('are not called utils or helpers', () => {
    expect(
      breaking(typescript, ({ path }) => /^(utils?|helpers?|common|misc)\.ts$/.test(basename(path))),
    ).toEqual([]);
  });

  it(`have at most ${LINES_MAX} lines, tests ${TEST_LINES_MAX}`, () => {
    const max = (path: string) => (path.startsWith('test/') ? TEST_LINES_MAX : LINES_MAX);
    expect(breaking(typescript, ({ path, text }) => text.split('\n').length - 1 > max(path))).toEqual([]);
  });

  it('of src open with their duty; a command of the CLI says it in its description', () => {
    const isCommand = ({ path, code }: Source) => layerOf(path) === 'cli' && /new Command\('/.test(code);
    const opens = ({ text }: Source) => /^\/\*\*[\s\S]{20,}?\*\//.test(text);
    expect(breaking(sources, (file) => !opens(file) && !isCommand(file))).toEqual([]);
  });
});

describe('words', () => {
  it('no class or interface hides its meaning behind Service, Manager, Helper, Factory or I…', () => {
    const vague = /\b(class|interface|type)\s+(\w*(Service|Manager|Helper|Factory|Util)s?|I[A-Z]\w*)\b/;
    expect(breaking(typescript, (file) => vague.test(file.code))).toEqual([]);
  });

  it('nothing is left for later', () => {
    const later = /\b(TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b/;
    expect(breaking([...typescript, ...migrations], (file) => later.test(file.text))).toEqual([]);
  });

  it('the type checker is never silenced', () => {
    const silenced = /@ts-(ignore|nocheck|expect-error)/;
    const anything = /(:|\bas|<|\||,|=>)\s*any\b(?!\w|\s*[a-z])/;
    expect(breaking(typescript, (file) => silenced.test(file.text))).toEqual([]);
    expect(breaking(typescript, (file) => anything.test(withoutStrings(file.code)))).toEqual([]);
  });

  it('no test is left out or alone', () => {
    const partial = /\b(it|test|describe)(\.\w+)*\.(only|skip|todo|fails)\b/;
    expect(breaking(typescript, (file) => partial.test(withoutStrings(file.code)))).toEqual([]);
  });

  it('core is quiet about the wire: the words of a reply stand in reply.ts alone', () => {
    const frame = /JSON\.stringify\(\[\s*'(OK|EOSE|CLOSED|NOTICE|COUNT|EVENT)'/;
    expect(breaking(sources, (file) => frame.test(file.code))).toEqual(['src/core/reply.ts']);
  });
});

/** Texts, templates and patterns hold words, not code. */
function withoutStrings(code: string): string {
  return code
    .replace(/'(?:[^'\\\n]|\\.)*'/g, "''")
    .replace(/`(?:[^`\\]|\\.)*`/g, '``')
    .replace(/\/(?:[^/\\\n*]|\\.)(?:[^/\\\n]|\\.)*\/[gimsuy]*/g, '/./');
}

// ── The specification ─────────────────────────────────────────────────────────────────────────────────────────────

describe('SPEC.md', () => {
  const INVARIANTS = [...Array.from({ length: 15 }, (_, at) => `I${at + 1}`), 'I17'];
  const spec = readFileSync(join(ROOT, 'SPEC.md'), 'utf8');
  const sections = spec
    .split(/^## /m)
    .slice(1)
    .filter((section) => /^I\d+\b/.test(section));
  const testsIn = (text: string) => [...new Set(text.match(/\b(?:src|test)\/[\w/-]+\.test\.ts\b/g) ?? [])];

  it('has each of the invariants once, in order', () => {
    expect(sections.map((section) => section.match(/^I\d+/)![0])).toEqual(INVARIANTS);
  });

  it.each(INVARIANTS)('%s names the tests that hold it, and they exist', (name) => {
    const section = sections.find((one) => one.match(/^I\d+/)![0] === name) ?? '';
    expect(testsIn(section)).not.toEqual([]);
    expect(testsIn(section).filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });

  it('names no test elsewhere that does not exist', () => {
    expect(testsIn(spec).filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});
