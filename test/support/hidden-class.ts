/** Do all these objects have one hidden class? V8 alone knows it. */
import { setFlagsFromString } from 'node:v8';

export function haveOneHiddenClass(objects: readonly object[]): boolean {
  setFlagsFromString('--allow-natives-syntax');
  const haveSame = new Function('a', 'b', 'return %HaveSameMap(a, b)') as (a: object, b: object) => boolean;
  return objects.every((each) => haveSame(each, objects[0]!));
}
