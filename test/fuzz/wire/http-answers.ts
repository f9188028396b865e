/** Every HTTP answer against the OpenAPI document: its status is documented, and its body fits the schema. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import type { JsonSchema } from '../make/from-schema.js';

export interface Operation {
  readonly method: string;
  /** With `{name}` for each parameter. */
  readonly path: string;
  readonly parameters: readonly {
    readonly name: string;
    readonly in: string;
    readonly schema?: JsonSchema;
  }[];
  readonly body: JsonSchema | undefined;
  readonly needsAuth: boolean;
  readonly statuses: readonly string[];
  readonly streams: boolean;
}

interface Media {
  readonly schema?: JsonSchema;
}
interface Described {
  readonly $ref?: string;
  readonly parameters?: Operation['parameters'];
  readonly requestBody?: { readonly content?: Record<string, Media> };
  readonly security?: readonly object[];
  readonly responses: Record<string, { readonly $ref?: string; readonly content?: Record<string, Media> }>;
}

/** Headers that no answer lacks. */
const SAFE: Readonly<Record<string, RegExp>> = {
  'x-content-type-options': /^nosniff$/,
  'referrer-policy': /^no-referrer$/,
  'x-frame-options': /^DENY$/,
  'content-security-policy': /frame-ancestors 'none'/,
};

export class ApiDocument {
  readonly operations: readonly Operation[];
  private readonly checks = new Map<string, ValidateFunction>();
  private readonly ajv = new Ajv2020({ strict: false, validateFormats: false });

  constructor(private readonly document: { readonly paths: Record<string, Record<string, Described>> }) {
    this.ajv.addSchema({ $id: 'api', ...document });
    this.operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, described]) => this.operationOf(method, path, described)),
    );
  }

  static async read(base: string): Promise<ApiDocument> {
    return new ApiDocument((await (await fetch(`${base}/docs/json`)).json()) as { paths: never });
  }

  resolve = (ref: string): JsonSchema => {
    const path = ref.replace(/^#\//, '').split('/');
    return path.reduce<unknown>(
      (at, key) => (at as Record<string, unknown>)[key],
      this.document,
    ) as JsonSchema;
  };

  /** Undefined if the answer is as documented. `operation`: undefined for a path that no route has. */
  problemOf(
    operation: Operation | undefined,
    status: number,
    headers: Headers,
    text: string,
  ): string | undefined {
    if (status >= 500) return `a status of ${status}: ${text.slice(0, 300)}`;
    for (const [name, value] of Object.entries(SAFE))
      if (!value.test(headers.get(name) ?? '')) return `an answer (${status}) without ${name}`;
    if (operation === undefined) return undefined;
    if (!operation.statuses.includes(String(status)))
      return `${status} is not documented: ${text.slice(0, 300)}`;
    if (!headers.get('content-type')?.startsWith('application/json')) return undefined;
    return this.bodyProblem(operation, status, text);
  }

  private bodyProblem({ method, path }: Operation, status: number, text: string): string | undefined {
    const key = `${method} ${path} ${status}`;
    const check = this.checks.get(key) ?? this.compile(method, path, status);
    this.checks.set(key, check);
    let json: unknown;
    try {
      json = JSON.parse(text);
    } catch {
      return `a body that is not JSON: ${text.slice(0, 200)}`;
    }
    if (check(json)) return undefined;
    return `the body does not fit its schema: ${this.ajv.errorsText(check.errors)}: ${text.slice(0, 300)}`;
  }

  private compile(method: string, path: string, status: number): ValidateFunction {
    const described = this.document.paths[path]![method]!;
    const given = described.responses[status]!;
    const response = given.$ref === undefined ? given : (this.resolve(given.$ref) as typeof given);
    const { schema = {} } = response.content?.['application/json'] ?? {};
    return this.ajv.compile(withOwnRefs(schema) as object);
  }

  private operationOf(method: string, path: string, described: Described): Operation {
    const { parameters = [], requestBody, security, responses } = described;
    const types = Object.values(responses).flatMap(({ content = {} }) => Object.keys(content));
    return {
      method,
      path,
      parameters,
      body: requestBody?.content?.['application/json']?.schema,
      needsAuth: security !== undefined,
      statuses: Object.keys(responses),
      streams: types.some((type) => !type.startsWith('application/json')),
    };
  }
}

/** References of the document, as references into the schema `api`. */
function withOwnRefs(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(withOwnRefs);
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      key === '$ref' && typeof inner === 'string' ? `api${inner}` : withOwnRefs(inner),
    ]),
  );
}
