/**
 * The one HTTP port. Health and metrics are answered whatever the roles; the relay and the API add their own routes before
 * it listens.
 */
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { isLoopback } from './client-address.js';
import { ERRORS } from './core/errors.js';
import { FRAME_BYTES_MAX } from './core/settings.js';
import { inTime, isNoAnswer } from './in-time.js';
import type { Metrics } from './metrics.js';

/** Whoever asks whether the node is ready waits for seconds at most. */
const READY_MS_MAX = 3_000;

export interface HttpOptions {
  readonly metrics: Metrics;
  readonly metricsToken: string | undefined;
  /** Resolves when the database answers. */
  readonly ready: () => Promise<void>;
}

export class Http {
  readonly app: FastifyInstance = fastify({
    logger: false,
    bodyLimit: FRAME_BYTES_MAX,
    forceCloseConnections: true,
    // A topic id has up to 103 characters, three times as many when each is percent-encoded.
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 512 },
    frameworkErrors: (_error, _request, reply) => {
      const { status, message } = ERRORS.INVALID_REQUEST;
      (reply as unknown as FastifyReply).code(status).send({ code: 'INVALID_REQUEST', message, details: {} });
    },
  });
  private stopping = false;

  constructor(options: HttpOptions) {
    this.addHealth(options);
    this.app.setErrorHandler((error, _request, reply) => {
      if (!isNoAnswer(error)) return reply.send(error);
      const { status, message } = ERRORS.UNAVAILABLE;
      return reply
        .code(status)
        .header('retry-after', '5')
        .send({ code: 'UNAVAILABLE', message, details: {} });
    });
  }

  /** From now on no new client gets in, and /readyz says so. */
  stopAccepting(): void {
    this.stopping = true;
  }
  get closing(): boolean {
    return this.stopping;
  }

  /** Gives the port, which the system chooses when 0 is asked for. */
  async listen(host: string, port: number): Promise<number> {
    await this.app.listen({ host, port });
    const address = this.app.server.address();
    return typeof address === 'object' && address !== null ? address.port : port;
  }

  async close(): Promise<void> {
    this.stopping = true;
    await this.app.close();
  }

  private addHealth(options: HttpOptions): void {
    this.app.get('/healthz', () => ({ status: 'ok' }));
    this.app.get('/readyz', async (_request, reply) => {
      if (this.stopping) return reply.code(503).send({ status: 'shutting down' });
      try {
        await inTime(options.ready(), READY_MS_MAX, 'PostgreSQL');
        return { status: 'ready' };
      } catch {
        return reply.code(503).send({ status: 'the database does not answer' });
      }
    });
    this.app.get('/metrics', async (request, reply) => {
      if (!mayReadMetrics(request, options.metricsToken)) {
        return reply
          .code(403)
          .send('metrics are for this machine, or for a bearer of MINATO_METRICS_TOKEN\n');
      }
      const { registry } = options.metrics;
      return reply.type(registry.contentType).send(await registry.metrics());
    });
  }
}

function mayReadMetrics(request: FastifyRequest, token: string | undefined): boolean {
  if (token !== undefined && request.headers.authorization === `Bearer ${token}`) return true;
  // A proxy on this machine connects from loopback too, but says for whom.
  const forwarded = ['x-forwarded-for', 'x-real-ip', 'forwarded'].some(
    (name) => request.headers[name] !== undefined,
  );
  return isLoopback(request.socket.remoteAddress ?? '') && !forwarded;
}

/** By which name the client asks; it chooses a community and proves nothing. */
export function hostOf(headers: { readonly host?: string | undefined }): string | undefined {
  return headers.host?.replace(/:\d+$/, '').toLowerCase();
}
