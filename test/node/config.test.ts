/**
 * Boot settings, the commands' help and errors, and `minato settings` against the database of a running node.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { resetSetting } from '../../src/communities/communities.sql.js';
import { nodeSettingKeys } from '../../src/communities/rules-node-settings.js';
import { type SettingKey, settingKeys } from '../../src/communities/rules-settings.js';
import { ConfigError, readConfig } from '../../src/node/config.js';
import { runCli, runProgram, startCli } from '../support/cli.js';
import { RawClient } from '../support/clients/client.js';
import { newAuthor, sign } from '../support/events.js';
import { startTestNode, type TestNode } from '../support/node.js';
import { createTestDatabase } from '../support/servers/database.js';

const NPUB = 'npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6';
const HEX = '3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d';

function problemsOf(env: Record<string, string>): string {
  try {
    readConfig(env);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as Error).message;
  }
  throw new Error(`nothing was wrong with ${JSON.stringify(env)}`);
}

describe('environment variables', () => {
  const DEFAULTS = {
    host: '127.0.0.1',
    port: 7447,
    dataDir: './data',
    databaseUrl: undefined,
    eventStore: 'postgres',
    publicUrl: undefined,
    networkId: undefined,
    adminPubkeys: [],
    topicMode: 'required',
    authMode: 'off',
    redisUrl: undefined,
    dynamodb: undefined,
    trustedProxies: ['loopback'],
    proxyHeader: undefined,
    proxyProtocol: false,
    user: undefined,
    logLevel: 'info',
    metricsToken: undefined,
  };

  it('have defaults that need no set-up', () => {
    expect(readConfig({})).toEqual(DEFAULTS);
  });

  it('that are empty count as unset', () => {
    const names = [
      'HOST',
      'PORT',
      'DATA_DIR',
      'PUBLIC_URL',
      'NETWORK_ID',
      'ADMIN_PUBKEYS',
      'TOPIC_MODE',
      'AUTH_MODE',
      'TRUSTED_PROXIES',
      'LOG_LEVEL',
      'METRICS_TOKEN',
      'DYNAMODB_PREFIX',
      'EVENT_STORE',
    ];
    const others = ['DATABASE_URL', 'REDIS_URL', 'DYNAMODB_ENDPOINT', 'AWS_REGION'];
    const env = Object.fromEntries(
      [...names.map((name) => `MINATO_${name}`), ...others].map((name) => [name, '']),
    );
    expect(readConfig(env)).toEqual(DEFAULTS);
  });

  it('of other programs are ignored', () => {
    expect(readConfig({ PATH: '/bin', MINATO_TYPO: 'x', HOME: '' })).toEqual(DEFAULTS);
  });

  it.each<[string, string, string, unknown]>([
    ['MINATO_HOST', '0.0.0.0', 'host', '0.0.0.0'],
    ['MINATO_HOST', '::', 'host', '::'],
    ['MINATO_PORT', '0', 'port', 0],
    ['MINATO_PORT', '65535', 'port', 65_535],
    ['MINATO_DATA_DIR', '/var/lib/minato', 'dataDir', '/var/lib/minato'],
    ['DATABASE_URL', 'postgres://u:p@db.example/minato', 'databaseUrl', 'postgres://u:p@db.example/minato'],
    [
      'DATABASE_URL',
      'postgresql:///minato?host=/run/postgresql',
      'databaseUrl',
      'postgresql:///minato?host=/run/postgresql',
    ],
    ['MINATO_PUBLIC_URL', 'wss://relay.example.org', 'publicUrl', 'wss://relay.example.org'],
    ['MINATO_PUBLIC_URL', 'https://relay.example.org/x', 'publicUrl', 'https://relay.example.org/x'],
    ['MINATO_NETWORK_ID', 'kukuri:test:', 'networkId', 'kukuri:test:'],
    ['MINATO_ADMIN_PUBKEYS', `${HEX}, ${NPUB},`, 'adminPubkeys', [HEX, HEX]],
    ['MINATO_TOPIC_MODE', 'open', 'topicMode', 'open'],
    ['MINATO_TOPIC_MODE', 'default', 'topicMode', 'default'],
    ['MINATO_AUTH_MODE', 'off', 'authMode', 'off'],
    ['MINATO_AUTH_MODE', 'required', 'authMode', 'required'],
    ['REDIS_URL', 'redis://localhost:6379', 'redisUrl', 'redis://localhost:6379'],
    [
      'DYNAMODB_ENDPOINT',
      'http://localhost:8000',
      'dynamodb',
      { endpoint: 'http://localhost:8000', region: 'us-east-1', prefix: 'minato_' },
    ],
    ['AWS_REGION', 'eu-central-1', 'dynamodb', undefined],
    ['MINATO_TRUSTED_PROXIES', 'loopback, 10.0.0.0/8', 'trustedProxies', ['loopback', '10.0.0.0/8']],
    ['MINATO_LOG_LEVEL', 'silent', 'logLevel', 'silent'],
    ['MINATO_PROXY_HEADER', 'X-Real-IP', 'proxyHeader', 'x-real-ip'],
    ['MINATO_PROXY_PROTOCOL', 'on', 'proxyProtocol', true],
    ['MINATO_METRICS_TOKEN', 'sixteen-letters!', 'metricsToken', 'sixteen-letters!'],
  ])('%s=%s is taken', (name, value, key, expected) => {
    expect(readConfig({ [name]: value })).toEqual({ ...DEFAULTS, [key]: expected });
  });

  it.each<[string, string]>([
    ['MINATO_PORT', 'http'],
    ['MINATO_PORT', '65536'],
    ['MINATO_PORT', '-1'],
    ['MINATO_PORT', '80.5'],
    ['MINATO_PORT', ' '],
    ['DATABASE_URL', 'mysql://u@db/minato'],
    ['DATABASE_URL', 'db.example'],
    ['MINATO_PUBLIC_URL', 'relay.example.org'],
    ['MINATO_PUBLIC_URL', 'ftp://relay.example.org'],
    ['MINATO_NETWORK_ID', 'x'.repeat(101)],
    ['MINATO_ADMIN_PUBKEYS', 'alice'],
    ['MINATO_ADMIN_PUBKEYS', HEX.toUpperCase()],
    ['MINATO_ADMIN_PUBKEYS', `${HEX},${HEX.slice(1)}`],
    ['MINATO_ADMIN_PUBKEYS', `${NPUB.slice(0, -1)}7`],
    ['MINATO_TOPIC_MODE', 'closed'],
    ['MINATO_TOPIC_MODE', 'OPEN'],
    ['MINATO_AUTH_MODE', 'on'],
    ['REDIS_URL', 'localhost:6379'],
    ['DYNAMODB_ENDPOINT', 'localhost:8000'],
    ['AWS_REGION', 'Europe, mostly'],
    ['MINATO_DYNAMODB_PREFIX', 'my tables/'],
    ['MINATO_EVENT_STORE', 'sqlite'],
    ['MINATO_EVENT_STORE', 'dynamodb'],
    ['MINATO_TRUSTED_PROXIES', 'everybody'],
    ['MINATO_TRUSTED_PROXIES', '10.0.0.0/99'],
    ['MINATO_LOG_LEVEL', 'loud'],
    ['MINATO_PROXY_HEADER', 'x-anything'],
    ['MINATO_PROXY_PROTOCOL', 'yes'],
    ['MINATO_METRICS_TOKEN', 'short'],
  ])('%s=%s is refused with a sentence that names it', (name, value) => {
    const lines = problemsOf({ [name]: value }).split('\n');
    expect(lines).toHaveLength(2);
    expect(lines[1]).toMatch(new RegExp(`^ *${name}: .{10,}`));
    expect(lines[1]).not.toMatch(/NaN|undefined|ZodError|received/);
  });

  it('that are invalid are all reported together', () => {
    const text = problemsOf({
      MINATO_PORT: 'x',
      MINATO_TOPIC_MODE: 'y',
      MINATO_ADMIN_PUBKEYS: 'p,q',
      DATABASE_URL: 'z',
    });
    for (const name of ['MINATO_PORT', 'MINATO_TOPIC_MODE', 'MINATO_ADMIN_PUBKEYS', 'DATABASE_URL'])
      expect(text).toContain(name);
    expect(text).toContain('"p"');
    expect(text).toContain('"q"');
  });

  it('with a secret are not repeated in the message', () => {
    expect(problemsOf({ MINATO_METRICS_TOKEN: 'secret' })).not.toContain('secret');
    expect(problemsOf({ DATABASE_URL: 'mysql://u:hunter2@db/minato' })).not.toContain('hunter2');
  });
});

describe('MINATO_NETWORK_ID', () => {
  it('is fixed at the first boot, and another value is refused from then on', async () => {
    const test = await createTestDatabase();
    const boot = async (env: Record<string, string>) => (await startTestNode({ on: test, env })).close();
    await boot({ MINATO_NETWORK_ID: 'kukuri:first:' });
    await expect(boot({ MINATO_NETWORK_ID: 'kukuri:second:' })).rejects.toThrow(
      /MINATO_NETWORK_ID.*kukuri:second:.*kukuri:first:/,
    );
    await boot({ MINATO_NETWORK_ID: 'kukuri:first:' });
    await boot({});
    await test.drop();
  });

  it('that was not set at the first boot is the default for ever', async () => {
    const test = await createTestDatabase();
    const boot = async (env: Record<string, string>) => (await startTestNode({ on: test, env })).close();
    await boot({});
    await expect(boot({ MINATO_NETWORK_ID: 'kukuri:late:' })).rejects.toThrow('MINATO_NETWORK_ID');
    await boot({});
    await test.drop();
  });
});

interface Run {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs `minato …` in a separate process, without the environment of this one. */
async function minato(args: string[], env: Record<string, string> = {}): Promise<Run> {
  const all = { PATH: process.env.PATH ?? '', NO_COLOR: '1', ...env };
  const { code, stdout, stderr } = await runProgram(args, all);
  return { code: code ?? -1, out: stdout, err: stderr };
}

describe('minato', () => {
  const COMMANDS = [
    ...['serve', 'migrate', 'settings', 'communities', 'import', 'export', 'doctor'],
    ...['topics', 'requests', 'members', 'operators', 'invites'],
  ];

  it('--help names every command', async () => {
    const { code, out } = await minato(['--help']);
    expect(code).toBe(0);
    for (const command of COMMANDS) expect(out).toContain(command);
  });

  it.each([
    ...COMMANDS,
    ...['list', 'get', 'set', 'reset'].map((command) => `settings ${command}`),
    ...['list', 'add'].map((command) => `communities ${command}`),
  ])('%s --help exits with 0 and says how it is used', async (command) => {
    const { code, out, err } = await minato([...command.split(' '), '--help']);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).toMatch(new RegExp(`^Usage: minato ${command}`));
  });

  it('serve --help lists the environment variables that it reads', async () => {
    const { out } = await minato(['serve', '--help']);
    for (const name of [
      'HOST',
      'PORT',
      'DATA_DIR',
      'PUBLIC_URL',
      'NETWORK_ID',
      'ADMIN_PUBKEYS',
      'TOPIC_MODE',
      'AUTH_MODE',
      'LOG_LEVEL',
    ]) {
      expect(out).toContain(`MINATO_${name}`);
    }
    expect(out).toContain('DATABASE_URL');
  });

  it('--version is the version of the package', async () => {
    const { code, out } = await minato(['--version']);
    expect(code).toBe(0);
    expect(out).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it.each(['sail', 'settings sail', 'serve --sail', 'settings set topic.mode'])(
    '"minato %s" is an error that points to the help',
    async (words) => {
      const { code, out, err } = await minato(words.split(' '));
      expect(code).toBeGreaterThan(0);
      expect(out).toBe('');
      expect(err).toMatch(/^error: /);
      expect(err).toMatch(/--help|Usage:/);
    },
  );

  it('an invalid environment variable gives one clear message, without a stack', async () => {
    const { code, err } = await minato(['serve'], { MINATO_PORT: 'x', MINATO_LOG_LEVEL: 'y' });
    expect(code).toBe(1);
    expect(err).toMatch(/^minato: .*\n.*MINATO_PORT.*\n.*MINATO_LOG_LEVEL/);
    expect(err).not.toMatch(/\n\s+at /);
  });

  it('a database that does not answer gives one clear message without its password', async () => {
    const { code, err } = await minato(['settings'], {
      DATABASE_URL: 'postgres://u:hunter2@127.0.0.1:1/none',
    });
    expect(code).toBe(1);
    expect(err).toMatch(/^minato: .{10,}/);
    expect(err).not.toMatch(/\n\s+at |hunter2/);
  });
});

describe('minato settings on the database of a running node', () => {
  let relay: TestNode;
  let client: RawClient;
  const run = (...args: string[]) => minato(args, { DATABASE_URL: relay.test.url });
  const name = async () => {
    const response = await fetch(relay.http, { headers: { accept: 'application/nostr+json' } });
    return ((await response.json()) as { name: string }).name;
  };

  beforeAll(async () => {
    relay = await startTestNode();
    client = await RawClient.connect(relay.url);
  });
  afterAll(async () => {
    await client.close();
    await relay.close();
  });

  it('works with every form of DATABASE_URL that libpq accepts', async () => {
    const { host, port, user, database } = relay.test.connection;
    const socket = encodeURIComponent(host);
    for (const url of [
      `postgres://${user}@/${database}?host=${host}&port=${port}`,
      `postgresql:///${database}?user=${user}&host=${socket}&port=${port}`,
      `postgres://${user}@:${port}/${database}?host=${host}&application_name=minato%20cli`,
      `postgres://${user}@${socket}:${port}/${database}`,
      `postgresql://?dbname=${database}&user=${user}&port=${port}&host=${host}`,
    ]) {
      const { code, err } = await minato(['settings', 'get', 'topic.mode'], { DATABASE_URL: url });
      expect([code, err], url).toEqual([0, '']);
    }
  });

  it.each([
    ['settings', 'get', 'relay.name'],
    ['settings', 'get', 'relay.nam'],
    ['settings', 'list', '--json'],
    ['settings', 'sail'],
    ['communities', '--help'],
  ])('%s %s %s in a process of its own ends by itself with the same result', async (...args) => {
    const given = args.filter((arg) => arg !== undefined);
    const env = { DATABASE_URL: relay.test.url };
    expect(await startCli(given, env).ended).toEqual(await runCli(given, env));
  });

  it('list shows every setting with its value, also as JSON', async () => {
    const [plain, json] = [await run('settings'), await run('settings', 'list', '--json')];
    expect(plain.code).toBe(0);
    for (const key of [...settingKeys, ...nodeSettingKeys])
      expect(plain.out).toMatch(new RegExp(`^${key.replace('.', '\\.')} +\\S`, 'm'));
    expect(json.code).toBe(0);
    const values = JSON.parse(json.out) as Record<string, unknown>;
    expect(Object.keys(values)).toEqual([...settingKeys, ...nodeSettingKeys]);
    expect(values['topic.mode']).toBe('open');
  });

  it('set takes effect on the running node, get shows it, reset undoes it', async () => {
    expect(await run('settings', 'set', 'relay.name', 'Our "harbour" 港')).toMatchObject({ code: 0 });
    await expect.poll(name, { timeout: 100_000 }).toBe('Our "harbour" 港');
    expect(await run('settings', 'get', 'relay.name')).toEqual({
      code: 0,
      out: '"Our \\"harbour\\" 港"\n',
      err: '',
    });
    expect(await run('settings', 'reset', 'relay.name')).toMatchObject({ code: 0 });
    await expect.poll(name, { timeout: 100_000 }).toBe('Minato');
  });

  it('set of topic.mode applies to the next message of an open connection', async () => {
    expect(await client.publish(sign(newAuthor()))).toEqual([true, '']);
    expect(await run('settings', 'set', 'topic.mode', 'required')).toMatchObject({ code: 0 });
    await expect
      .poll(() => client.publish(sign(newAuthor())), { timeout: 100_000 })
      .toEqual([false, 'invalid: missing topic: add ["t","kukuri:global"]']);
    expect(await run('settings', 'set', 'topic.mode', 'open')).toMatchObject({ code: 0 });
    await expect.poll(() => client.publish(sign(newAuthor())), { timeout: 100_000 }).toEqual([true, '']);
  });

  it('set reads numbers, lists and booleans as JSON, and text unchanged', async () => {
    const values: [SettingKey, string, unknown][] = [
      ['limits.tagsMax', '7', 7],
      ['rate.exemptLoopback', 'false', false],
      ['topic.freeKinds', '[0,"10000-19999"]', [0, '10000-19999']],
      ['relay.urls', '["wss://relay.example.org"]', ['wss://relay.example.org']],
      ['relay.name', '42', '42'],
    ];
    for (const [key, value] of values)
      expect(await run('settings', 'set', key, value)).toMatchObject({ code: 0 });
    const stored = JSON.parse((await run('settings', 'list', '--json')).out);
    expect(stored).toMatchObject(Object.fromEntries(values.map(([key, , value]) => [key, value])));
    const community = relay.node.communities.find(undefined, 'default')!;
    for (const [key] of values) await resetSetting(relay.database.pool, community.id, key);
  });

  it.each([
    ['limits.tagsMax', 'many'],
    ['topic.mode', 'closed'],
    ['topic.freeKinds', '["x-y"]'],
    ['relay.urls', '["https://relay.example.org"]'],
  ])('set %s %s is refused with a sentence, and changes nothing', async (key, value) => {
    const { code, out, err } = await run('settings', 'set', key, value);
    expect({ code, out }).toEqual({ code: 1, out: '' });
    expect(err).toMatch(new RegExp(`^minato: ${key.replace('.', '\\.')}: .{5,}`));
    const community = relay.node.communities.find(undefined, 'default');
    const { rows } = await relay.database.pool.query(
      'SELECT value FROM community_settings WHERE community = $1 AND key = $2 AND value = $3::jsonb',
      [community?.id, key, JSON.stringify(value)],
    );
    expect(rows).toEqual([]);
  });

  it('an unknown key is an error that suggests a similar key', async () => {
    const runs = [
      await run('settings', 'get', 'limits.nothing'),
      await run('settings', 'set', 'tagsmax', '1'),
      await run('settings', 'reset', '__proto__'),
    ];
    for (const { code, out, err } of runs) {
      expect({ code, out }).toEqual({ code: 1, out: '' });
      expect(err).toMatch(/^minato: unknown setting/);
    }
    expect(runs[1]?.err).toContain('limits.tagsMax');
  });

  it('an unknown community is an error that names the existing ones', async () => {
    const { code, err } = await run('settings', 'get', 'relay.name', '--community', 'nobody');
    expect(code).toBe(1);
    expect(err).toMatch(/no community "nobody".*default/);
  });

  it('a community that a command adds has its own settings', async () => {
    expect(await run('communities', 'add', 'art', '--host', 'art.example.org')).toMatchObject({ code: 0 });
    expect(await run('settings', 'set', 'relay.name', 'Art', '-c', 'art')).toMatchObject({ code: 0 });
    expect((await run('settings', 'get', 'relay.name')).out).toBe('"Minato"\n');
    expect((await run('communities')).out).toMatch(/art +art\.example\.org/);
    await expect
      .poll(async () => (await fetch(`${relay.http}/c/art`)).text(), { timeout: 100_000 })
      .toContain('<title>Art</title>');
    const again = await run('communities', 'add', 'art');
    expect(again).toMatchObject({ code: 1, err: expect.stringContaining('already exists') });
  });
});
