/** Compares a template with AWS' own specification of its resources (the npm package of the CDK). */
import { loadAwsServiceSpecSync } from '@aws-cdk/aws-service-spec';
import { parseDocument } from 'yaml';

type Database = ReturnType<typeof loadAwsServiceSpecSync>;
type Resource = ReturnType<Database['all']>[number] & {
  readonly properties: Properties;
  readonly attributes: Record<string, unknown>;
};
type Properties = Record<string, { readonly required?: boolean; readonly type: Type }>;
type Type =
  | { readonly type: 'ref'; readonly reference: { readonly $ref: string } }
  | { readonly type: 'array' | 'map'; readonly element: Type }
  | { readonly type: 'union'; readonly types: readonly Type[] }
  | { readonly type: 'string' | 'number' | 'integer' | 'boolean' | 'json' | 'date-time' | 'tag' | 'null' };

/** What `!Ref`, `!Sub`, `!GetAtt` and `!Select` become: a value of any type. */
class Computed {
  constructor(
    readonly by: string,
    readonly of: unknown,
  ) {}
}
const computed = (tag: string) => ({ tag, resolve: (of: string) => new Computed(tag, of) });

export function lintTemplate(text: string): string[] {
  const select = { tag: '!Select', collection: 'seq' as const, resolve: () => new Computed('!Select', '') };
  const tags = [computed('!Ref'), computed('!GetAtt'), computed('!Sub'), select];
  const template = parseDocument(text, { customTags: tags }).toJS() as {
    Resources: Record<string, { Type: string; Properties?: Record<string, unknown> }>;
    Outputs?: Record<string, unknown>;
  };
  const linter = new Linter(template.Resources);
  for (const [name, { Type, Properties = {} }] of Object.entries(template.Resources))
    linter.resource(name, Type, Properties);
  linter.references(template.Outputs ?? {}, 'Outputs');
  return linter.found;
}

class Linter {
  readonly found: string[] = [];
  private readonly spec = loadAwsServiceSpecSync();

  constructor(private readonly resources: Record<string, { readonly Type: string }>) {}

  resource(name: string, type: string, properties: Record<string, unknown>): void {
    const known = this.typeNamed(type);
    if (known === undefined) this.say(name, `${type} is not a type of resource`);
    else this.properties(properties, known.properties, name);
    this.references(properties, name);
  }

  /** Each `!GetAtt` names an attribute of its resource. */
  references(value: unknown, path: string): void {
    if (value instanceof Computed) {
      if (value.by !== '!GetAtt') return;
      const [name, ...rest] = String(value.of).split('.');
      const known = this.typeNamed(this.resources[name!]?.Type ?? '');
      if (known !== undefined && known.attributes[rest.join('.')] === undefined)
        this.say(path, `${value.of} is not an attribute`);
    } else if (value !== null && typeof value === 'object')
      for (const [key, each] of Object.entries(value)) this.references(each, `${path}.${key}`);
  }

  private typeNamed(type: string): Resource | undefined {
    return this.spec.lookup('resource', 'cloudFormationType', 'equals', type)[0] as unknown as Resource;
  }

  private properties(given: Record<string, unknown>, known: Properties, path: string): void {
    for (const [key, value] of Object.entries(given)) {
      if (known[key] === undefined) this.say(path, `${key} is not a property`);
      else if (!this.fits(value, known[key].type, `${path}.${key}`))
        this.say(path, `${key} is not of the type ${known[key].type.type}`);
    }
    for (const [key, { required }] of Object.entries(known))
      if (required === true && given[key] === undefined) this.say(path, `${key} is missing`);
  }

  private fits(value: unknown, type: Type, path: string): boolean {
    if (value instanceof Computed || type.type === 'json') return true;
    const isObject = value !== null && typeof value === 'object' && !Array.isArray(value);
    switch (type.type) {
      case 'union':
        // If none fits: what there is to say about the first.
        return (
          type.types.some((each) => this.isSilent(value, each, path)) ||
          this.fits(value, type.types[0]!, path)
        );
      case 'array':
        return (
          Array.isArray(value) && value.every((each, at) => this.fits(each, type.element, `${path}[${at}]`))
        );
      case 'map':
        return isObject && Object.values(value).every((each) => this.fits(each, type.element, path));
      case 'ref': {
        if (!isObject) return false;
        const definition = this.spec.get('typeDefinition', type.reference.$ref) as unknown as {
          properties: Properties;
        };
        this.properties(value as Record<string, unknown>, definition.properties, path);
        return true;
      }
      case 'tag':
        return isObject && 'Key' in value && 'Value' in value;
      case 'number':
      case 'integer':
        return value !== '' && typeof value !== 'boolean' && !Number.isNaN(Number(value));
      case 'boolean':
        return typeof value === 'boolean';
      default:
        return ['string', 'number', 'boolean'].includes(typeof value);
    }
  }

  /** Whether it fits without anything to say about its parts. */
  private isSilent(value: unknown, type: Type, path: string): boolean {
    const before = this.found.length;
    const isRight = this.fits(value, type, path) && this.found.length === before;
    this.found.length = before;
    return isRight;
  }

  private say(path: string, text: string): void {
    this.found.push(`${path}: ${text}`);
  }
}
