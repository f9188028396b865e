/**
 * Serves the OpenAPI document, which is generated from the routes, and the page that shows it. The page loads
 * nothing from other hosts. Everything is generated once and kept as bytes, so that a request is cheap and a
 * slow reader takes no memory of its own (I18).
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import { KeptFile } from '../port/kept-file.js';
import { sendKept } from '../port/send-kept.js';
import { SESSION_COOKIE } from '../sessions/cookie.js';
import type { Route } from './contract.js';
import { type Document, shareParts } from './document.js';
import { toYaml } from './rules-yaml.js';

const TITLE = 'Minato API';
const DESCRIPTION = `Members request topics here, and operators run their community.

**Community.** A node may serve several communities. Every path below also exists under
\`/c/<slug>/v1/…\`, for the community of that name. Without a slug the host name selects the community,
otherwise the default community. An unknown slug is answered with 404 \`COMMUNITY_NOT_FOUND\`.

**Signed requests.** Members and operators sign each request as in NIP-98: \`Authorization: Nostr
<base64 of an event>\`. The event has kind 27235, empty content, the current time as \`created_at\`
(within 60 seconds) and the tags \`["u", <the full public URL with its query>]\`, \`["method", <GET,
POST …>]\` and, if there is a body, \`["payload", <SHA-256 of the body in hex>]\`. A signature is valid
for one request; a second use is refused.

**Tokens.** \`POST /v1/auth/challenge\` returns a challenge. Sign it as in NIP-42 (kind 22242, tags
\`challenge\` and \`relay\`) and send it to \`POST /v1/auth/verify\`, which returns a token for
\`Authorization: Bearer …\`. It is valid for a limited time, in this community only.

**Roles.** Each route below \`/v1/admin/\` names the least role that may call it, also as \`x-role\`:
\`viewer\`, \`moderator\` or \`operator\`. Each role may do everything that the one before it may. 403
\`OPERATORS_ONLY\` names the role that is missing in \`details.role\`.

**Browsers.** \`POST /v1/admin/session\`, signed by a key with a role, sets a cookie that authenticates the
key at \`/v1/admin/…\` of this community. With it, every method except GET and HEAD needs the
session's \`csrf_token\` in the header \`X-CSRF-Token\`.

**Plans** limit how many topics a member has and how often a day some requests are allowed; 402
\`QUOTA_EXCEEDED\` says which limit is reached and when it is reset. A request with an \`X-Request-Id\`
is counted once, even if it is sent again.

**Refusals** are \`{"code", "message", "details"}\`. Programs use \`code\`. A 429 has \`Retry-After\`.

**Times** are milliseconds since 1970. **Lists** have pages: \`next_cursor\` is the \`cursor\` of the
next page, null at the end.`;

const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

const HEADERS = { 'content-security-policy': POLICY, 'cache-control': 'no-cache' };

const PAGE = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${TITLE}</title>
<link rel="stylesheet" href="/docs/static/swagger-ui.css">
<link rel="stylesheet" href="/docs/static/minato.css">
<link rel="icon" type="image/svg+xml" href="/docs/static/icon.svg">
<meta name="viewport" content="width=device-width, initial-scale=1">
</head>
<body>
<header>
<a href="/"><img src="/docs/static/icon.svg" alt="" width="28" height="28">Minato</a> API reference
</header>
<main id="swagger-ui"></main>
<script src="/docs/static/swagger-ui-bundle.js"></script>
<script src="/docs/static/start.js"></script>
</body>
</html>
`;

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="8" fill="#0b7285"/><g fill="none" stroke="#fff" stroke-linecap="round"
stroke-width="2.4"><circle cx="16" cy="8" r="3"/><path d="M16 11v15M10 15h12M6 19c1 5 5 7 10 7s9-2 10-7"/></g>
</svg>
`;

/** The look of the console. */
const LOOK = `
body { margin: 0; background: #fff; font-family: system-ui, sans-serif; }
header { display: flex; gap: .7rem; align-items: center; padding: .8rem 1.4rem; color: #495057;
  border-bottom: 1px solid #dee2e6; }
header a { display: flex; gap: .6rem; align-items: center; color: #212529; font-weight: 700;
  text-decoration: none; }
.swagger-ui, .swagger-ui .info .title, .swagger-ui .opblock-tag, .swagger-ui .opblock .opblock-summary-path {
  font-family: system-ui, sans-serif; color: #212529; }
.swagger-ui .info { margin: 1.6rem 0; }
.swagger-ui .info a, .swagger-ui a.nostyle { color: #0b7285; }
.swagger-ui .opblock { border-radius: 8px; box-shadow: none; }
.swagger-ui .scheme-container { box-shadow: none; border-bottom: 1px solid #dee2e6; padding: 0 0 1rem; }
`;

/** The page cannot sign requests, so it only shows the API. */
const START = `SwaggerUIBundle({
  url: '/docs/json',
  dom_id: '#swagger-ui',
  deepLinking: true,
  supportedSubmitMethods: [],
  docExpansion: 'list',
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
});
`;

const HTML = 'text/html; charset=utf-8';
const SCRIPT = 'text/javascript; charset=utf-8';
const STYLES = 'text/css; charset=utf-8';
/** Files of the package with the script of the page. */
const STATIC_FILES: Readonly<Record<string, string>> = {
  'swagger-ui.css': STYLES,
  'swagger-ui-bundle.js': SCRIPT,
};

/** Called before the routes are added: the document collects each route when it is added. */
export async function addDocs(
  scope: FastifyInstance,
  version: string,
  routes: readonly Route[],
): Promise<void> {
  const file = new URL(documentFile(version, routes), import.meta.url);
  const read = existsSync(file) ? () => readFile(file) : await generateDocument(scope, version, routes);
  const files = new Map([
    ['/docs', new KeptFile(HTML, async () => Buffer.from(PAGE))],
    ['/docs/static/start.js', new KeptFile(SCRIPT, async () => Buffer.from(START))],
    ['/docs/static/icon.svg', new KeptFile('image/svg+xml', async () => Buffer.from(ICON))],
    ['/docs/static/minato.css', new KeptFile(STYLES, async () => Buffer.from(LOOK))],
    ['/docs/json', new KeptFile('application/json; charset=utf-8', read)],
    [
      '/docs/yaml',
      new KeptFile('application/yaml; charset=utf-8', async () =>
        Buffer.from(toYaml(JSON.parse(String(await read())) as Document)),
      ),
    ],
  ]);
  for (const [name, type] of Object.entries(STATIC_FILES)) {
    files.set(`/docs/static/${name}`, new KeptFile(type, () => readFile(join(staticFolder(), name))));
  }
  for (const [path, file] of files) {
    scope.get(path, { schema: { hide: true } }, (request, reply) => sendKept(request, reply, file, HEADERS));
  }
}

/**
 * The build leaves the document of these routes in this file beside the program: generating it takes a fifth
 * of the CPU time of a start.
 */
export function documentFile(version: string, routes: readonly Route[]): string {
  const key = JSON.stringify([version, routes.map(({ method, url, summary }) => [method, url, summary])]);
  return `openapi-${createHash('sha256').update(key).digest('hex').slice(0, 16)}.json`;
}

/** Of the last node that this process has started. */
let known: { readonly file: string; readonly bytes: Buffer } | undefined;

/**
 * Without the file of the build: generated when the node starts, before the first request (I18). Nodes of one
 * process with the same routes share it.
 */
async function generateDocument(
  scope: FastifyInstance,
  version: string,
  routes: readonly Route[],
): Promise<() => Promise<Buffer>> {
  const { default: swagger } = await import('@fastify/swagger');
  await scope.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: TITLE, description: DESCRIPTION, version },
      components: {
        securitySchemes: {
          nostr: {
            type: 'http',
            scheme: 'Nostr',
            description: 'NIP-98: an event signed for this one request',
          },
          token: {
            type: 'http',
            scheme: 'bearer',
            bearerFormat: 'JWT',
            description: 'A token of POST /v1/auth/verify',
          },
          session: {
            type: 'apiKey',
            in: 'cookie',
            name: SESSION_COOKIE,
            description: 'The cookie of POST /v1/admin/session or /v1/sessions/link',
          },
          csrf: {
            type: 'apiKey',
            in: 'header',
            name: 'X-CSRF-Token',
            description: 'The csrf_token of the session of the cookie',
          },
        },
      },
    },
    transform: jsonSchemaTransform,
  });
  const file = documentFile(version, routes);
  let made: Buffer | undefined;
  scope.addHook('onReady', async () => {
    if (known?.file !== file) {
      const document = shareParts(scope.swagger() as unknown as Document, routes);
      known = { file, bytes: Buffer.from(JSON.stringify(document)) };
    }
    made = known.bytes;
  });
  return async () => made!;
}

function staticFolder(): string {
  return join(dirname(createRequire(import.meta.url).resolve('@fastify/swagger-ui')), 'static');
}
