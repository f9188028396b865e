/** The OpenAPI document, made from the routes, and the page that shows it. Nothing on it comes from elsewhere. */
import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance } from 'fastify';
import { jsonSchemaTransform } from 'fastify-type-provider-zod';
import { SESSION_COOKIE } from './session-cookie.js';

const TITLE = 'Minato API';
const DESCRIPTION = `Members ask for topics here, and operators run their community.

**Which community.** A node may serve several. Every path below also exists under \`/c/<slug>/v1/…\`, for the community of that
name; without it the host name decides, and else it is the default community. An unknown name is answered with
404 \`COMMUNITY_NOT_FOUND\`.

**Who asks.** Requests of members and operators are signed, each by itself, as in
NIP-98: \`Authorization: Nostr <base64 of an event>\`. The event has kind 27235, empty content, \`created_at\` now (within 60
seconds) and the tags \`["u", <the full public URL with its query>]\`, \`["method", <GET, POST …>]\` and, when there is a body,
\`["payload", <SHA-256 of the body in hex>]\`. A signature is good for one request; a second use is refused.

**Or with a token.** \`POST /v1/auth/challenge\` gives a challenge; signed as in NIP-42 (kind 22242, tags \`challenge\` and \`relay\`) and sent
to \`POST /v1/auth/verify\` it gives a token for \`Authorization: Bearer …\`, good for a while in this community only.

**Or with a browser.** \`POST /v1/admin/session\`, signed by an operator, gives a cookie that stands for the operator at \`/v1/admin/…\` of
this community. With it, whatever is not GET or HEAD needs the session's \`csrf_token\` in the header \`X-CSRF-Token\`.

**Plans** limit how many topics a member has and how often a day some things are asked; 402 \`QUOTA_EXCEEDED\` says what
is used up and when it begins anew. A request with an \`X-Request-Id\` is counted once however often it is sent.

**Refusals** are \`{"code", "message", "details"}\`. Programs go by \`code\`. With 429 comes \`Retry-After\`.

**Times** are milliseconds since 1970. **Lists** come in pages: \`next_cursor\` is the \`cursor\` of the next one, null at the end.`;

const POLICY = {
  'default-src': "'none'",
  'script-src': "'self'",
  'style-src': "'self' 'unsafe-inline'",
  'img-src': "'self' data:",
  'font-src': "'self' data:",
  'connect-src': "'self'",
  'base-uri': "'none'",
  'form-action': "'none'",
  'frame-ancestors': "'none'",
};

/** Before the routes: it hears of each as it is added. */
export async function addDocs(scope: FastifyInstance, version: string): Promise<void> {
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
            description: 'The cookie of POST /v1/admin/session',
          },
          csrf: {
            type: 'apiKey',
            in: 'header',
            name: 'X-CSRF-Token',
            description: 'The csrf_token of the session that the cookie stands for',
          },
        },
      },
    },
    transform: jsonSchemaTransform,
  });
  await scope.register(swaggerUi, {
    routePrefix: '/docs',
    staticCSP: POLICY,
    theme: { title: TITLE },
    // Requests are signed one by one, which this page cannot do.
    uiConfig: { supportedSubmitMethods: [], docExpansion: 'list', defaultModelsExpandDepth: -1 },
  });
}
