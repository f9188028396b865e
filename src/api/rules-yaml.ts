/**
 * Writes JSON values as readable YAML 1.2. Strings are quoted as in JSON, which is valid YAML. Pure.
 */

export function toYaml(value: unknown): string {
  const lines: string[] = [];
  write(value, '', lines);
  return `${lines.join('\n')}\n`;
}

/** Adds the lines of an object or a list, or the one line of anything else. */
function write(value: unknown, indent: string, lines: string[]): void {
  if (!hasParts(value)) {
    lines.push(indent + JSON.stringify(value));
  } else if (Array.isArray(value)) {
    for (const item of value) writePart('-', item, indent, lines);
  } else {
    for (const [key, part] of Object.entries(value)) {
      if (part !== undefined) writePart(`${keyText(key)}:`, part, indent, lines);
    }
  }
}

function writePart(lead: string, part: unknown, indent: string, lines: string[]): void {
  if (!hasParts(part)) lines.push(`${indent}${lead} ${JSON.stringify(part)}`);
  else {
    lines.push(indent + lead);
    write(part, `${indent}  `, lines);
  }
}

function hasParts(value: unknown): value is object {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

/** Without quotes only if it cannot be read as another type. */
function keyText(key: string): string {
  return /^[A-Za-z_$][\w$-]{3,}$/.test(key) && !/^(true|false|null)$/i.test(key) ? key : JSON.stringify(key);
}
