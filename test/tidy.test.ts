/**
 * Checks the habits of this code: what may import what, where SQL may be, and how files and things are named.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const LINES_MAX = 600;
/** A test file may be longer, because it lists many cases. */
const TEST_LINES_MAX = 1_000;
/** `lineWidth` of biome.json. */
const LINE_WIDTH_MAX = 110;

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
  // Keeps text that only looks like a comment: `'/*'`, `https://`.
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|[\s;,{}()])\/\/.*$/gm, '$1');
}

const isTest = ({ path }: Source) => path.endsWith('.test.ts');
const typescript = ['src', 'test', 'bench', 'scripts']
  .flatMap(filesUnder)
  .filter((path) => path.endsWith('.ts'))
  .map(read);
const sources = typescript.filter((file) => file.path.startsWith('src/') && !isTest(file));
const migrations = filesUnder('migrations').map(read);

/** The paths of the files that break a rule; a test expects none. */
const breaking = (files: readonly Source[], rule: (file: Source) => boolean) =>
  files.filter(rule).map((file) => file.path);

/** Matches what one of the patterns matches. */
const anyOf = (...patterns: readonly RegExp[]) => new RegExp(patterns.map(({ source }) => source).join('|'));

// ── Stages and folders ─────────────────────────────────────────────────────────────────────────────────────

/** Files of node/ that every stage may use. */
const NODE_MACHINERY = /^src\/node\/(config|roles|log|metrics|version)\.ts$/;

/**
 * The stage of a file, by its name and folder. A file may import its own stage and those before it in ORDER.
 * The first match counts.
 */
const STAGES: readonly (readonly [name: string, fits: RegExp])[] = [
  // The contract of the event store, and the files that assemble its PostgreSQL implementation.
  ['machinery', /^src\/events\/(store|stored-events)\.ts$/],
  ['domain', /^src\/events\/postgres\/(store|lane\/(?!lock\.)[a-z]+)\.ts$/],
  ['rules', /^src\/events\/rules\/|\/rules(-[a-z0-9-]+)?\.ts$/],
  ['sql', /^src\/events\/postgres\/|\.sql\.ts$/],
  [
    'machinery',
    anyOf(
      /^src\/(dynamodb|postgres|redis)\//,
      /^src\/limits\/(in-time|poll-loop|time-slices)\.ts$/,
      /^src\/moderation\/patterns\//,
      /^src\/port\/(client-address|host)\.ts$/,
    ),
  ],
  ['machinery', NODE_MACHINERY],
  ['commands', /^src\/cli\/|\/(command(-[a-z-]+)?|words|[a-z]+-words|check)\.ts$|^src\/events\/files\//],
  ['routes', /^src\/api\/|\/(routes(-[a-z-]+)?|schemas|lines|streams|quota|management|cookie)\.ts$/],
  ['node', /^src\/node\//],
  ['domain', /^src\//],
];
const ORDER = ['rules', 'machinery', 'sql', 'domain', 'routes', 'node', 'commands'];
const FOLDER_FILES_MAX = 25;

const stageOf = (path: string) => STAGES.find(([, fits]) => fits.test(path))?.[0] ?? 'unknown';

function importsOf({ code }: Source): string[] {
  const pattern = /(?:\bfrom\s*|\bimport\s*\(?\s*|new URL\()'([^']+)'/g;
  return [...code.matchAll(pattern)].map((match) => match[1]!);
}

function importedFiles(file: Source): string[] {
  return importsOf(file)
    .filter((name) => name.startsWith('.'))
    .map((name) => normalize(join(dirname(file.path), name)).replace(/\.js$/, '.ts'))
    .filter((path) => path.startsWith('src/'));
}

const rules = sources.filter((file) => stageOf(file.path) === 'rules');

describe('folders', () => {
  it('src has no loose files', () => {
    expect(breaking(sources, ({ path }) => path.split('/').length === 2)).toEqual([]);
  });

  it(`no folder of src has more than ${FOLDER_FILES_MAX} files`, () => {
    const counts = new Map<string, number>();
    for (const { path } of sources) counts.set(dirname(path), (counts.get(dirname(path)) ?? 0) + 1);
    expect([...counts].filter(([, files]) => files > FOLDER_FILES_MAX)).toEqual([]);
  });

  it('machinery knows no domain', () => {
    const machinery = sources.filter((file) => /^src\/(dynamodb|postgres|redis|limits)\//.test(file.path));
    const known = anyOf(
      /^src\/(dynamodb|postgres|redis|limits)\//,
      /^src\/port\/client-address\.ts$/,
      /\/rules(-[a-z0-9-]+)?\.ts$/,
      /^src\/events\/rules\//,
    );
    const wrong = machinery.flatMap((file) =>
      importedFiles(file)
        .filter((path) => !known.test(path) && !NODE_MACHINERY.test(path))
        .map((path) => `${file.path} → ${path}`),
    );
    expect(wrong).toEqual([]);
  });

  it('the API and the CLI know other domains than these only in the files named here', () => {
    const known = anyOf(
      /^src\/(api|cli|postgres|redis|limits|port|communities|sessions)\//,
      /\/rules(-[a-z0-9-]+)?\.ts$/,
      /^src\/events\/(rules|verify)\//,
    );
    const knowing = new Set(
      sources
        .filter((file) => /^src\/(api|cli)\//.test(file.path))
        .filter((file) => importedFiles(file).some((path) => !known.test(path) && !NODE_MACHINERY.test(path)))
        .map((file) => file.path.replace(/^src\/(cli\/doctor)(-[a-z]+)?\.ts$/, 'src/$1*.ts')),
    );
    expect([...knowing].sort()).toEqual([
      // The lists of the routes.
      'src/api/admin.ts',
      // The caller: the state of the account, and the accepted terms.
      'src/api/auth.ts',
      // What a reader may read.
      'src/api/reading.ts',
      'src/api/routes.ts',
      // The usage counts of plans.
      'src/api/server.ts',
      'src/cli/context.ts',
      // Doctor checks everything.
      'src/cli/doctor*.ts',
      // The list of the commands, and the node itself.
      'src/cli/main.ts',
      // The tables in DynamoDB.
      'src/cli/migrate.ts',
      'src/cli/serve-instance.ts',
      'src/cli/serve-instances.ts',
      'src/cli/serve-node.ts',
      'src/cli/serve.ts',
      // The defaults of the boot settings.
      'src/cli/variables.ts',
    ]);
  });
});

describe('stages', () => {
  it('a file imports its own stage and those before it, never a later one', () => {
    const wrong = sources.flatMap((file) => {
      const stage = ORDER.indexOf(stageOf(file.path));
      return importedFiles(file)
        .filter((path) => ORDER.indexOf(stageOf(path)) > stage)
        .map((path) => `${file.path} → ${path}`);
    });
    expect(wrong).toEqual([]);
  });

  it('the imports are really found', () => {
    const lane = sources.find((file) => file.path === 'src/events/postgres/lane/transactions.ts')!;
    expect(importedFiles(lane)).toEqual(
      expect.arrayContaining(['src/events/rules/batch/batch.ts', 'src/events/postgres/batch.ts']),
    );
  });

  it('rules import rules and a few pure libraries, and nothing that does I/O', () => {
    const bad = rules.flatMap((file) =>
      importsOf(file)
        .filter(
          (name) =>
            !/^(zod|stemmer|opencc-js\/dict\/\w+|re2js|ipaddr\.js$|@noble\/hashes\/\w+\.js|\.)/.test(name),
        )
        .map((name) => `${file.path} → ${name}`),
    );
    expect(bad).toEqual([]);
    expect(rules.length).toBeGreaterThan(40);
  });

  it('rules use no clock, no randomness and no environment', () => {
    const impure =
      /\b(Date\b|Math\.random|crypto\.|process\.|console\.|setTimeout|setInterval|fetch\(|performance\.)/;
    expect(breaking(rules, (file) => impure.test(file.code))).toEqual([]);
  });
});

// ── SQL ────────────────────────────────────────────────────────────────────────────────────────────────────

const SQL = /\b(SELECT|INSERT|UPDATE|DELETE|ALTER|CREATE)\b|['`](BEGIN|COMMIT|ROLLBACK|SET|LISTEN|NOTIFY)\b/;

describe('SQL', () => {
  it('is in *.sql.ts, events/postgres and postgres only', () => {
    const elsewhere = sources.filter(
      ({ path }) => stageOf(path) !== 'sql' && !/^src\/(events\/)?postgres\//.test(path),
    );
    const lines = elsewhere.flatMap(({ path, code }) =>
      code
        .split('\n')
        .filter((line) => SQL.test(line))
        .map((line) => `${path}: ${line.trim()}`),
    );
    // Advice of doctor to the operator is a sentence, not a query.
    const isAdvice = (line: string) => /^src\/health\/server\.ts: .*ALTER SYSTEM SET /.test(line);
    // This file ends its transactions where it handles their outcome.
    const isEnd = (line: string) =>
      /^src\/outbox\/consumers\/batches\.ts: .*tx\.query\('(COMMIT|ROLLBACK)'\)/.test(line);
    const isOtherStore = (line: string) =>
      anyOf(
        /^src\/limits\/redis\.ts: redis\.call\('SET'/,
        /^src\/audit\/dynamodb\.ts: UpdateExpression: `SET /,
        /^src\/events\/dynamodb\/[\w-]+\.ts: text: ['`]SET /,
      ).test(line);
    const isMethod = (line: string) => /^src\/[\w/-]+\.ts: method: 'DELETE',$/.test(line);
    const isAllowed = (line: string) => isAdvice(line) || isEnd(line) || isOtherStore(line) || isMethod(line);
    expect(lines.filter((line) => !isAllowed(line))).toEqual([]);
  });

  it('is not visible in the contract of the event store, nor to files that only need the contract', () => {
    const contract = sources.find(({ path }) => path === 'src/events/store.ts')!;
    expect(importsOf(contract).filter((name) => name === 'pg' || name.includes('events/postgres'))).toEqual(
      [],
    );
    const needsOnlyContract = anyOf(
      /^src\/relay\b.*\.ts$/,
      /^src\/moderation\/(pending-actions|consumer)\b.*\.ts$/,
      /^src\/events\/(admission|seen-counts)\b.*\.ts$/,
      /^src\/(erasure\/run|trust\/consumer)\b.*\.ts$/,
    );
    const users = sources.filter(({ path }) => needsOnlyContract.test(path));
    expect(users.length).toBeGreaterThan(20);
    const knowing = (file: Source) =>
      importedFiles(file).some((path) => path.startsWith('src/events/postgres/'));
    expect(breaking(users, knowing)).toEqual([]);
  });

  it('is really found where it is allowed', () => {
    expect(breaking(sources, (file) => SQL.test(file.code))).toContain('src/events/postgres/read/query.ts');
  });

  it('never reads the time of the database, except to compare its clock with ours', () => {
    const asks =
      /(?<!performance\.)\bnow\(\)|clock_timestamp|CURRENT_(TIMESTAMP|DATE|TIME)|statement_timestamp/i;
    const store = sources.filter((file) => stageOf(file.path) === 'sql');
    expect(breaking(store, (file) => asks.test(file.code))).toEqual(['src/health/health.sql.ts']);
    expect(breaking(migrations, ({ text }) => asks.test(text.replace(/--.*$/gm, '')))).toEqual([]);
  });

  it('deadlines and pauses in memory do not follow the wall clock, which may be set back', () => {
    const waits = breaking(sources, (file) => /Date\.now\(\) \+/.test(file.code));
    // The queue is in the database, and its times are.
    expect(waits).toEqual(['src/jobs/schedule.ts']);
  });

  it('migrations are numbered from 1 without gaps', () => {
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
    // Tags belong to an event as well, though they name neither it nor its author.
    expect(tables.find(([, name]) => name === 'event_tags')?.[2]).toContain('community integer NOT NULL');
  });
});

// ── Names and shape ────────────────────────────────────────────────────────────────────────────────────────

describe('files', () => {
  it('are named in kebab-case', () => {
    const named = /^[a-z0-9]+(-[a-z0-9]+)*(\.sql)?(\.test|\.config|\.d)?\.[a-z]+$/;
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

  it("no line is longer than the formatter's width", () => {
    // A line cannot be broken inside a URL or a literal without spaces.
    const unbreakable = /https?:\/\/\S{50,}|(['"`/])[^\s'"`]{60,}\1/;
    const isTooLong = (line: string) => line.length > LINE_WIDTH_MAX && !unbreakable.test(line);
    const wrong = typescript.flatMap(({ path, text }) =>
      text.split('\n').flatMap((line, at) => (isTooLong(line) ? [`${path}:${at + 1}`] : [])),
    );
    expect(wrong).toEqual([]);
  });

  it('of src start with their duty; a command of the CLI has it in its description', () => {
    const isCommand = ({ path, code }: Source) => stageOf(path) === 'commands' && /new Command\('/.test(code);
    const opens = ({ text }: Source) => /^\/\*\*[\s\S]{20,}?\*\//.test(text);
    expect(breaking(sources, (file) => !opens(file) && !isCommand(file))).toEqual([]);
  });
});

describe('comments', () => {
  it('of src name only files that exist', () => {
    const paths = ['src', 'test', 'bench', 'scripts'].flatMap(filesUnder);
    const exists = (name: string) => paths.some((path) => path === name || path.endsWith(`/${name}`));
    const wrong = sources.flatMap(({ path, text }) => {
      const comments = text.match(/\/\*[\s\S]*?\*\/|(?<=^|\s)\/\/.*$/gm) ?? [];
      const named = comments.flatMap((comment) => comment.match(/(?<![\w*./-])[\w./-]+\.ts\b/g) ?? []);
      return named.filter((name) => !exists(name)).map((name) => `${path}: ${name}`);
    });
    expect(wrong).toEqual([]);
  });
});

describe('words', () => {
  it('no class or interface is called Service, Manager, Helper, Factory or I…', () => {
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

  it('no test is skipped or exclusive', () => {
    const partial = /\b(it|test|describe)(\.\w+)*\.(only|skip|todo|fails)\b/;
    expect(breaking(typescript, (file) => partial.test(withoutStrings(file.code)))).toEqual([]);
  });

  it('only reply.ts makes the frames of replies', () => {
    const frame = /JSON\.stringify\(\[\s*'(OK|EOSE|CLOSED|NOTICE|COUNT|EVENT)'/;
    expect(breaking(sources, (file) => frame.test(file.code))).toEqual(['src/events/rules/reply.ts']);
  });
});

/** Strings, templates and patterns are not code. */
function withoutStrings(code: string): string {
  return code
    .replace(/'(?:[^'\\\n]|\\.)*'/g, "''")
    .replace(/`(?:[^`\\]|\\.)*`/g, '``')
    .replace(/\/(?:[^/\\\n*]|\\.)(?:[^/\\\n]|\\.)*\/[gimsuy]*/g, '/./');
}

// ── The specification ──────────────────────────────────────────────────────────────────────────────────────

describe('SPEC.md', () => {
  const INVARIANTS = Array.from({ length: 18 }, (_, at) => `I${at + 1}`);
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

  it('names no missing test in other sections', () => {
    expect(testsIn(spec).filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});
