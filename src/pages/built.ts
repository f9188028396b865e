/**
 * The built pages (`dist/console`): the operators' console, the members' pages and their assets. Each file is
 * read once and kept as bytes, so that a request is cheap (I18). The policy of a page allows scripts and
 * styles of this node only, and no request to another host.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { KeptFile } from '../port/kept-file.js';
import { sendKept } from '../port/send-kept.js';

export type PageName = 'admin' | 'members';

/** What a page may reach beside this node. */
export interface Reach {
  /** Relays of remote signers (NIP-46). */
  readonly remoteSigners?: boolean;
  /** Pictures, which the page loads after a click only. */
  readonly pictures?: boolean;
}

const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  woff2: 'font/woff2',
};
/** The name of an asset changes with its content. */
const ASSET_CACHE = 'public, max-age=31536000, immutable';
const NOT_BUILT = 'The pages are not built here. Run `npm run build`, then start the node again.\n';

export class BuiltPages {
  private readonly assets = new Map<string, KeptFile>();
  private readonly html = new Map<PageName, string>();

  /** Reads the folder; without a build every page says how to get one. */
  static async open(folder = findFolder()): Promise<BuiltPages> {
    const pages = new BuiltPages();
    if (folder === undefined) return pages;
    for (const name of ['admin', 'members'] as const)
      pages.html.set(name, await readFile(join(folder, `${name}.html`), 'utf8'));
    const names = new Set(await readdir(join(folder, 'assets')));
    const read = (name: string) => () => readFile(join(folder, 'assets', name));
    for (const name of names) {
      const type = TYPES[name.slice(name.lastIndexOf('.') + 1)];
      if (type === undefined) continue;
      const stored = names.has(`${name}.br`) ? { br: read(`${name}.br`) } : {};
      pages.assets.set(name, new KeptFile(type, read(name), stored));
    }
    return pages;
  }

  has(name: PageName): boolean {
    return this.html.has(name);
  }

  /** `fill` may put texts into the page before it is sent. */
  sendPage(
    reply: FastifyReply,
    name: PageName,
    reach: Reach = {},
    fill: (html: string) => string = (html) => html,
  ): FastifyReply {
    const html = this.html.get(name);
    if (html === undefined) return reply.code(503).type('text/plain; charset=utf-8').send(NOT_BUILT);
    const nonce = randomBytes(16).toString('base64');
    return reply
      .type('text/html; charset=utf-8')
      .headers({ 'content-security-policy': policyOf(nonce, reach), 'cache-control': 'no-cache' })
      .send(fill(html).replaceAll('__NONCE__', nonce));
  }

  async sendAsset(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { file: name } = request.params as { file: string };
    const file = this.assets.get(name);
    if (file === undefined) return reply.code(404).send({ error: 'no such file' });
    return sendKept(request, reply, file, { 'cache-control': ASSET_CACHE });
  }
}

/** Beside the compiled program, or in `dist` of a checkout. */
function findFolder(): string | undefined {
  const places = ['../console', '../../dist/console'].map((path) =>
    fileURLToPath(new URL(path, import.meta.url)),
  );
  return places.find((place) => existsSync(join(place, 'admin.html')));
}

function policyOf(nonce: string, { remoteSigners = false, pictures = false }: Reach): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'nonce-${nonce}'`,
    `img-src 'self' data:${pictures ? ' https:' : ''}`,
    "font-src 'self'",
    `connect-src 'self'${remoteSigners ? ' wss:' : ''}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}
