/**
 * The files of deploy/ for programs that cannot run here, as linters and published schemas see them. A file
 * with an error must be refused, so that a linter which checks nothing is found.
 */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { DCLinter } from 'dclint';
import { validate } from 'dockerfile-utils';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { environmentOf } from '../support/servers/debian-package.js';
import { freePort } from '../support/servers/free-port.js';
import { findCaddy, findNginx } from '../support/servers/programs.js';
import { lintTemplate } from './cloudformation.js';

const run = promisify(execFile);
const read = (path: string) => readFileSync(join('deploy', path), 'utf8');
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'minato-linters-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

it('Dockerfile: dockerfile-utils finds nothing', () => {
  expect(validate(read('Dockerfile'))).toEqual([]);
  expect(validate('FROM a\nCOPPY b c\n')).toHaveLength(1);
});

it("compose: the specification's schema and dclint find nothing", async () => {
  /** Not those about the order of keys; our image has both a name and a way to build it. */
  const off = Object.fromEntries(
    [
      'no-build-and-image',
      'no-quotes-in-volumes',
      'require-project-name-field',
      'service-dependencies-alphabetical-order',
      'service-keys-order',
      'service-ports-alphabetical-order',
      'services-alphabetical-order',
      'top-level-properties-order',
    ].map((rule) => [rule, 0 as const]),
  );
  const linter = new DCLinter({ rules: off, quiet: true, debug: false, exclude: [] });
  // Its types are not found by the compiler.
  const lint = (path: string) => linter.lintFiles([path], false) as { messages: { message: string }[] }[];
  const found = (path: string) =>
    lint(path).flatMap(({ messages }) => messages.map(({ message }) => message));
  expect(found('deploy/compose/compose.yml')).toEqual([]);
  const wrong = join(folder, 'compose.yml');
  await writeFile(wrong, read('compose/compose.yml').replace('read_only: true', 'read_onli: true'));
  expect(found(wrong).join('\n')).toContain('must NOT have additional properties');
});

describe('Kubernetes: the types of its API', () => {
  /** Kinds of other projects; their types are not published with those of Kubernetes. */
  const FOREIGN = ['Kustomization', 'PodMonitor'];

  interface Resource {
    readonly apiVersion: string;
    readonly kind?: string;
  }
  const resources = readdirSync('deploy/kubernetes')
    .flatMap((name) => parseAllDocuments(read(`kubernetes/${name}`)).map((one) => one.toJS() as Resource))
    .filter(({ kind }) => kind !== undefined && !FOREIGN.includes(kind));

  /** What the compiler says about a resource as a value of its type: unknown, missing and wrong fields. */
  async function errorsOf(all: readonly Resource[]): Promise<string[]> {
    const lines = all.map(({ apiVersion, kind, ...rest }, at) => {
      const group = apiVersion.includes('/') ? apiVersion.replace('.k8s.io', '') : `core/${apiVersion}`;
      const types = resolve('node_modules/kubernetes-types', group);
      const value = JSON.stringify({ apiVersion, kind, ...rest });
      return `export const r${at}: import(${JSON.stringify(types)}).${kind} = ${value};`;
    });
    const file = join(folder, 'resources.ts');
    await writeFile(file, lines.join('\n'));
    const compiler = resolve('node_modules/typescript/bin/tsc');
    const options = ['--ignoreConfig', '--noEmit', '--strict', '--module', 'nodenext', '--types', ''];
    const { stdout } = await run(process.execPath, [compiler, ...options, file], { cwd: folder }).catch(
      (failed: { stdout: string }) => failed,
    );
    return stdout.split('\n').filter((line) => line.includes('error'));
  }

  it('fit every resource', async () => {
    expect(resources).toHaveLength(11);
    expect(await errorsOf(resources)).toEqual([]);
  });

  it('refuse an unknown, a missing and a wrong field', async () => {
    const broken = (change: (spec: Record<string, unknown>) => void) => {
      const copy = structuredClone(resources.find(({ kind }) => kind === 'Deployment')!);
      change((copy as unknown as { spec: Record<string, unknown> }).spec);
      return copy;
    };
    const errors = await errorsOf([
      broken((spec) => Object.assign(spec, { replica: 2 })),
      broken((spec) => delete spec.selector),
      broken((spec) => Object.assign(spec, { replicas: '2' })),
    ]);
    expect(errors).toHaveLength(3);
    for (const [at, word] of ['replica', 'selector', 'string'].entries()) expect(errors[at]).toContain(word);
  });
});

it("CloudFormation: AWS' specification of its resources has every type, property and attribute", () => {
  const text = read('aws/minato.yaml');
  expect(lintTemplate(text)).toEqual([]);
  const broken = text
    .replace('Type: AWS::RDS::DBInstance', 'Type: AWS::RDS::DbInstance')
    .replace('BillingMode:', 'BilingMode:');
  expect(lintTemplate(broken)).toHaveLength(2);
});

it('nginx -t accepts the whole file, with TLS', async () => {
  const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')];
  await run('openssl', [
    ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=relay.example.org'],
    ...['-days', '1', '-keyout', key, '-out', certificate],
  ]);
  const [plain, secure] = [await freePort(), await freePort()];
  // Ports that need no privilege, and a certificate that is there.
  const text = read('nginx/minato.conf')
    .replace(/(ssl_certificate +)\S+;/, `$1${certificate};`)
    .replace(/(ssl_certificate_key +)\S+;/, `$1${key};`)
    .replace(/listen \[::\].*\n/g, '\n')
    .replace('listen 80;', `listen 127.0.0.1:${plain};`)
    .replace('listen 443 ', `listen 127.0.0.1:${secure} `);
  const file = join(folder, 'nginx.conf');
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join(' ');
  const around = `pid ${folder}/nginx.pid; error_log stderr; events {}`;
  await writeFile(file, `${around} http { access_log off; ${temporary} ${text} }`);
  const nginx = await findNginx();
  const options = { env: environmentOf(nginx) };
  const { stderr } = await run(nginx.path, ['-t', '-e', 'stderr', '-p', folder, '-c', file], options);
  expect(stderr).toContain('test is successful');
  expect(stderr).not.toMatch(/\[(warn|error)\]/);
});

it('caddy validate accepts the file as it is', async () => {
  const caddy = await findCaddy();
  const env = {
    ...environmentOf(caddy),
    HOME: folder,
    XDG_CONFIG_HOME: folder,
    XDG_DATA_HOME: folder,
  };
  const args = ['validate', '--config', 'deploy/caddy/Caddyfile', '--adapter', 'caddyfile'];
  const { stdout, stderr } = await run(caddy.path, args, { env });
  expect(stdout + stderr).toContain('Valid configuration');
});
