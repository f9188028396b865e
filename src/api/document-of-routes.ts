/**
 * The OpenAPI document without a running node. The build leaves it beside the program, and generates the
 * types of the pages from it. The routes are declared and never called, so their handlers need no
 * dependencies.
 */
import fastify from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import { SOFTWARE_VERSION } from '../node/version.js';
import { schemaOf } from './contract.js';
import { addDocs, documentFile } from './docs.js';
import { type RouteOptions, routesOf } from './routes.js';

export async function apiDocument(): Promise<{ readonly file: string; readonly document: string }> {
  const routes = routesOf(unused() as RouteOptions);
  const app = fastify({ logger: false, routerOptions: { maxParamLength: 512 } });
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  await addDocs(app, SOFTWARE_VERSION, routes);
  await app.register(
    async (scope) => {
      for (const route of routes) {
        const { method, url } = route;
        scope.route({ method, url, schema: schemaOf(route, true), handler: () => undefined });
      }
    },
    { prefix: '/v1' },
  );
  await app.ready();
  const { body } = await app.inject('/docs/json');
  await app.close();
  return { file: documentFile(SOFTWARE_VERSION, routes), document: body };
}

/** Any property of it, and any result of calling it, is the same again. */
function unused(): unknown {
  const value: unknown = new Proxy(() => undefined, {
    get: (_target, name) => (name === Symbol.toPrimitive ? () => '' : value),
    apply: () => value,
  });
  return value;
}
