/** The log of the node as it is written, by level and text. It can be paused to read. */
import { Button, Group, Select, Stack, Text, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import {
  IconEraser,
  IconLock,
  IconPlayerPause,
  IconPlayerPlay,
  IconSearch,
  IconTerminal2,
} from '@tabler/icons-react';
import { useState } from 'react';
import { DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Loading } from '../../../shared/components/states.js';
import { oneOfOr, textOr, useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { currentLanguage, useT } from '../../../shared/i18n.js';
import { useNodeOperator } from '../jobs/list.js';
import { StateBadge } from '../jobs/state-badge.js';
import { type Line, useLogLines } from './lines.js';
import './texts.js';

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
const filters = {
  level: oneOfOr(LEVELS, 'info'),
  text: textOr(''),
};
const TYPING_MS = 300;

export default function Log() {
  const t = useT();
  const isOfNode = useNodeOperator();
  const [{ level, text }, setFilters] = useFilters(filters);
  const [isPaused, setPaused] = useState(false);
  const [typed, setTyped] = useState(text);
  const { lines, waiting, state, clear } = useLogLines({ level, text }, isPaused, isOfNode === true);
  const narrow = useDebouncedCallback((words: string) => setFilters({ text: words }), TYPING_MS);
  const head = <PageHead title={t('log:title')} about={t('log:about')} />;
  if (isOfNode === undefined)
    return (
      <>
        {head}
        <Loading />
      </>
    );
  if (!isOfNode)
    return (
      <>
        {head}
        <Empty title={t('log:onlyNode')} icon={<IconLock size={26} />}>
          {t('log:onlyNodeAbout')}
        </Empty>
      </>
    );
  const isFiltered = text !== '' || level !== 'debug';
  return (
    <>
      {head}
      <Group align="flex-end" mb="md" gap="sm">
        <Select
          label={t('log:level')}
          value={level}
          onChange={(value) => setFilters({ level: LEVELS.find((each) => each === value) ?? 'info' })}
          data={LEVELS.map((value) => ({ value, label: t(`log:levels.${value}`) }))}
          allowDeselect={false}
          w={150}
        />
        <TextInput
          label={t('log:text')}
          placeholder={t('log:textAbout')}
          leftSection={<IconSearch size={16} />}
          value={typed}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            narrow(event.currentTarget.value);
          }}
          flex={1}
          miw={200}
        />
        <Button
          variant={isPaused ? 'filled' : 'default'}
          leftSection={isPaused ? <IconPlayerPlay size={16} /> : <IconPlayerPause size={16} />}
          onClick={() => setPaused(!isPaused)}
        >
          {t(isPaused ? 'log:resume' : 'log:pause')}
        </Button>
        <Button
          variant="default"
          leftSection={<IconEraser size={16} />}
          onClick={clear}
          disabled={lines.length === 0}
        >
          {t('log:clear')}
        </Button>
      </Group>
      <Text size="sm" c="dimmed" mb="xs" aria-live="polite">
        {isPaused ? t('log:paused', { lines: number(waiting) }) : t(`log:state.${state}`)}
      </Text>
      <DataTable
        label={t('log:lines')}
        list={{
          items: lines,
          isPending: false,
          error: null,
          hasNextPage: false,
          isFetchingNextPage: false,
          fetchNextPage: () => undefined,
          refetch: () => undefined,
        }}
        keyOf={({ position }) => String(position)}
        empty={
          <Empty title={t(isFiltered ? 'log:noneFound' : 'log:none')} icon={<IconTerminal2 size={26} />}>
            {t(isFiltered ? 'log:noneFoundAbout' : 'log:noneAbout')}
          </Empty>
        }
        columns={[
          { label: t('log:time'), width: 120, show: ({ time }) => <Time at={time} /> },
          { label: t('log:column'), width: 130, show: ({ level: of }) => <Level of={of} /> },
          { label: t('log:message'), show: (line) => <Message line={line} /> },
        ]}
      />
    </>
  );
}

function Time({ at }: { readonly at: string }) {
  const time = new Intl.DateTimeFormat(currentLanguage(), {
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    fractionalSecondDigits: 3,
    hourCycle: 'h23',
  }).format(new Date(at));
  return (
    <time dateTime={at} title={at} className="mono">
      {time}
    </time>
  );
}

const COLORS = { debug: 'gray', info: 'blue', warn: 'orange', error: 'red' } as const;

function Level({ of }: { readonly of: Line['level'] }) {
  const t = useT();
  return <StateBadge color={COLORS[of]}>{t(`log:levels.${of}`)}</StateBadge>;
}

function Message({ line }: { readonly line: Line }) {
  const fields = Object.entries(line.fields);
  return (
    <Stack gap={2}>
      <Text size="sm" className="text">
        {line.message}
      </Text>
      {fields.length > 0 && (
        <Text size="xs" c="dimmed" className="text mono">
          {fields.map(([name, value]) => `${name}=${textOf(value)}`).join('  ')}
        </Text>
      )}
    </Stack>
  );
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
