/**
 * Numbers by place, in pages of typed arrays outside the V8 heap: they grow by a page at a time, so that no
 * growth copies what is there already, and the garbage collector never walks them.
 */
const PAGE_BITS = 13;
const PAGE_SIZE = 1 << PAGE_BITS;
const IN_PAGE = PAGE_SIZE - 1;

export class IntColumn {
  private readonly pages: Int32Array[] = [];

  get(place: number): number {
    return this.pages[place >>> PAGE_BITS]![place & IN_PAGE]!;
  }
  set(place: number, value: number): void {
    const page = place >>> PAGE_BITS;
    while (this.pages.length <= page) this.pages.push(new Int32Array(PAGE_SIZE));
    this.pages[page]![place & IN_PAGE] = value;
  }
}

export class FloatColumn {
  private readonly pages: Float64Array[] = [];

  get(place: number): number {
    return this.pages[place >>> PAGE_BITS]![place & IN_PAGE]!;
  }
  set(place: number, value: number): void {
    const page = place >>> PAGE_BITS;
    while (this.pages.length <= page) this.pages.push(new Float64Array(PAGE_SIZE));
    this.pages[page]![place & IN_PAGE] = value;
  }
}

/** Places that are given out and taken back. The lowest ones are used first, so that columns stay short. */
export class Places {
  private readonly free: number[] = [];
  private next = 0;

  get used(): number {
    return this.next - this.free.length;
  }
  take(): number {
    return this.free.pop() ?? this.next++;
  }
  giveBack(place: number): void {
    this.free.push(place);
  }
}
