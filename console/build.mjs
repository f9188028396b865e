/**
 * Builds the pages into dist/console, after the node itself: the types of the API come from its routes. A
 * build whose inputs have not changed is skipped, so that a restart does not wait for it.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const STAMP = at('../dist/console/.built');
const TYPES = at('src/shared/schema.d.ts');

const built = existsSync(STAMP) ? JSON.parse(readFileSync(STAMP, 'utf8')) : {};
const pages = hashOf(await filesOfPages());
// The compiler's own record: the routes are loaded only if the program has changed.
const program = hashOf([at('../dist/.tsbuildinfo')]);
let { api } = built;
if (built.program !== program || !existsSync(TYPES)) api = await writeTypes();
if (!process.argv.includes('--types')) {
  if (built.pages !== pages || built.api !== api) await buildPages();
  writeFileSync(STAMP, JSON.stringify({ program, api, pages }));
}

async function buildPages() {
  process.stderr.write('building the pages …\n');
  // Tests set it to "test", and the build would contain the development version of React.
  process.env.NODE_ENV = 'production';
  const { build } = await import('vite');
  await build({ configFile: at('vite.config.ts'), logLevel: 'warn' });
  await compressAssets();
}

/**
 * The best quality takes seconds, and what is sent is a tenth smaller than what the node would make itself.
 */
async function compressAssets() {
  const folder = at('../dist/console/assets');
  const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
  const names = (await readdir(folder)).filter((name) => /\.(js|css)$/.test(name));
  await Promise.all(
    names.map(async (name) => {
      const bytes = await readFile(join(folder, name));
      await writeFile(join(folder, `${name}.br`), await promisify(brotliCompress)(bytes, { params }));
    }),
  );
}

/** Leaves the document for the node, and returns the hash of the document from which the types are made. */
async function writeTypes() {
  const folder = at('../dist/api');
  const older = (await readdir(folder)).filter((name) => /^openapi-\w+\.json$/.test(name));
  // First: the document would be read from there.
  for (const name of older) rmSync(join(folder, name));
  const { apiDocument } = await import('../dist/api/document-of-routes.js');
  const { file, document } = await apiDocument();
  writeFileSync(join(folder, file), document);
  const api = createHash('sha256').update(document).digest('hex');
  if (built.api !== api || !existsSync(TYPES)) {
    const { default: openapiTS, astToString } = await import('openapi-typescript');
    writeFileSync(TYPES, astToString(await openapiTS(document)));
  }
  return api;
}

async function filesOfPages() {
  const own = ['admin.html', 'members.html', 'head.html', 'build.mjs', 'vite.config.ts', 'used-styles.ts'];
  own.push('package.json', '../package-lock.json');
  const sources = (await readdir(at('src'), { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile() && entry.name !== 'schema.d.ts')
    .map((entry) => join(entry.parentPath, entry.name));
  return [...own.map((name) => at(name)), ...sources].sort();
}

function hashOf(paths) {
  const hash = createHash('sha256');
  for (const path of paths) hash.update(path.slice(at('..').length)).update(readFileSync(path));
  return hash.digest('hex');
}
