/**
 * Blocks of integers of 1, 2, 4 … 131,072, cut from pages outside the V8 heap. A freed block is used again,
 * whole or in halves.
 */
const PAGE_BITS = 18;
const PAGE_SIZE = 1 << PAGE_BITS;
const IN_PAGE = PAGE_SIZE - 1;
/** More tags than this no event has: its frame would be larger than a frame may be. */
export const SIZE_CLASS_MAX = 17;
const NONE = -1;

export class Blocks {
  private readonly pages: Int32Array[] = [];
  /** The first free block of each size; each free block names the next. */
  private readonly firstFree = new Int32Array(SIZE_CLASS_MAX + 1).fill(NONE);
  /** Integers in blocks that are taken. */
  used = 0;

  /** A block of 2^sizeClass integers. What is in it is not defined. */
  take(sizeClass: number): number {
    let from = sizeClass;
    while (from <= SIZE_CLASS_MAX && this.firstFree[from] === NONE) from += 1;
    if (from > SIZE_CLASS_MAX) {
      this.addPage();
      from = SIZE_CLASS_MAX;
    }
    const block = this.firstFree[from]!;
    this.firstFree[from] = this.get(block);
    while (from > sizeClass) {
      from -= 1;
      this.release(block + (1 << from), from);
    }
    this.used += 1 << sizeClass;
    return block;
  }

  free(block: number, sizeClass: number): void {
    this.used -= 1 << sizeClass;
    this.release(block, sizeClass);
  }

  get(at: number): number {
    return this.pages[at >>> PAGE_BITS]![at & IN_PAGE]!;
  }
  set(at: number, value: number): void {
    this.pages[at >>> PAGE_BITS]![at & IN_PAGE] = value;
  }
  /** Within one block. */
  move(from: number, to: number, count: number): void {
    const start = from & IN_PAGE;
    this.pages[from >>> PAGE_BITS]!.copyWithin(to & IN_PAGE, start, start + count);
  }
  /** From one block to another. */
  copy(from: number, to: number, count: number): void {
    const start = from & IN_PAGE;
    const source = this.pages[from >>> PAGE_BITS]!.subarray(start, start + count);
    this.pages[to >>> PAGE_BITS]!.set(source, to & IN_PAGE);
  }

  private release(block: number, sizeClass: number): void {
    this.set(block, this.firstFree[sizeClass]!);
    this.firstFree[sizeClass] = block;
  }

  private addPage(): void {
    const page = this.pages.length << PAGE_BITS;
    this.pages.push(new Int32Array(PAGE_SIZE));
    for (let block = page; block < page + PAGE_SIZE; block += 1 << SIZE_CLASS_MAX)
      this.release(block, SIZE_CLASS_MAX);
  }
}

/** The smallest size that holds so many. */
export function sizeClassFor(count: number): number {
  return count <= 1 ? 0 : 32 - Math.clz32(count - 1);
}
