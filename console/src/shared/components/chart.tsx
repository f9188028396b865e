/**
 * A line chart over time. The newest values stand beside it for readers who cannot see it. The library that
 * draws it is loaded when the first chart is shown.
 */
import { Box, Text, useComputedColorScheme, VisuallyHidden } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { useEffect, useRef, useState } from 'react';
import type uPlot from 'uplot';
import { currentLanguage, useT } from '../i18n.js';

export interface Series {
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** A CSS colour; one of the theme by default. */
  readonly color?: string;
}

interface ChartProps {
  readonly title: string;
  /** Seconds since 1970, rising. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  /** More digits are asked for where neighbouring values would read the same. */
  readonly format: (value: number, digits?: number) => string;
  readonly height?: number;
  readonly isFilled?: boolean;
}

const LIGHT = ['#0b7285', '#b35309', '#5f3dc4', '#2b8a3e', '#c2255c', '#495057'];
const DARK = ['#66d9e8', '#ffc078', '#b197fc', '#8ce99a', '#faa2c1', '#ced4da'];

export function Chart({ title, times, series, format, height = 200, isFilled = false }: ChartProps) {
  const t = useT();
  const scheme = useComputedColorScheme('light');
  const { ref: size, width } = useElementSize();
  const host = useRef<HTMLDivElement>(null);
  const [Plot, setPlot] = useState<typeof uPlot>();
  useEffect(() => {
    void import('./plot.js').then((loaded) => setPlot(() => loaded.Plot));
  }, []);
  useEffect(() => {
    if (host.current === null || width === 0 || Plot === undefined) return;
    const colors = scheme === 'dark' ? DARK : LIGHT;
    const axis = {
      stroke: scheme === 'dark' ? '#c1c2c5' : '#495057',
      grid: { stroke: scheme === 'dark' ? '#ffffff14' : '#0000000f', width: 1 },
      ticks: { show: false },
      font: '12px system-ui',
    };
    const plot = new Plot(
      {
        width,
        height,
        legend: { show: series.length > 1, live: true },
        cursor: { y: false, points: { size: 6 } },
        axes: [
          { ...axis, space: 60, values: (_plot, ticks) => ticks.map(timeLabel(times)) },
          { ...axis, size: 62, values: (_plot, ticks) => ticksOf(ticks, format) },
        ],
        series: [
          {
            label: '',
            value: (_plot, at) => (at === null ? '' : new Date(at * 1_000).toLocaleString(currentLanguage())),
          },
          ...series.map(({ label, color }, index) => {
            const stroke = color ?? colors[index % colors.length]!;
            return {
              label,
              stroke,
              width: 2,
              points: { show: false },
              ...(isFilled ? { fill: `${stroke}22` } : {}),
              value: (_plot: uPlot, value: number | null) => (value === null ? '' : format(value)),
            };
          }),
        ],
      },
      [[...times], ...series.map(({ values }) => [...values])] as uPlot.AlignedData,
      host.current,
    );
    return () => plot.destroy();
  }, [Plot, width, height, scheme, times, series, format, isFilled]);
  return (
    <Box component="figure" m={0} aria-label={t('shared:chartOf', { title })}>
      <Text component="figcaption" size="sm" fw={600} mb={4}>
        {title}
      </Text>
      <div ref={size} style={{ minHeight: height }}>
        <div ref={host} aria-hidden />
      </div>
      <VisuallyHidden>
        {series.map(({ label, values }) => {
          const value = values.findLast((each) => each !== null);
          return (
            <span
              key={label}
            >{`${label}: ${value === undefined || value === null ? '–' : format(value)}. `}</span>
          );
        })}
      </VisuallyHidden>
    </Box>
  );
}

const DIGITS_MAX = 4;

function ticksOf(ticks: readonly number[], format: ChartProps['format']): string[] {
  let shown = ticks.map((tick) => format(tick));
  for (let digits = 1; digits <= DIGITS_MAX && new Set(shown).size < ticks.length; digits += 1)
    shown = ticks.map((tick) => format(tick, digits));
  return shown;
}

/** The time of the day, or the date where the chart shows several days. */
function timeLabel(times: readonly number[]): (at: number) => string {
  const isLong = (times.at(-1) ?? 0) - (times[0] ?? 0) > 2 * 86_400;
  const format = new Intl.DateTimeFormat(
    currentLanguage(),
    isLong ? { month: 'short', day: 'numeric' } : { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' },
  );
  return (at) => format.format(at * 1_000);
}
