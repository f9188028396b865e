/** The filters of the list of cases. */
import { Button, Group, Paper, SegmentedControl, Select, SimpleGrid, Switch, TextInput } from '@mantine/core';
import { IconX } from '@tabler/icons-react';
import { useState } from 'react';
import { type FiltersOf, flag, oneOf, oneOfOr, text, uuid } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { npubOf, pubkeyOf } from '../../../shared/keys.js';
import { useRules } from './rules-by-id.js';
import { type CaseQuery, REASONS, STATUSES } from './types.js';
import { upTo, useWaiting } from './waiting.js';

const AGES = ['newer1', 'newer7', 'newer30', 'older1', 'older7', 'older30'] as const;
const DAY_MS = 86_400_000;

export const filterSchema = {
  status: oneOfOr([...STATUSES, 'all'], 'open'),
  topic: text,
  author: text,
  reason: oneOf(REASONS),
  rule: uuid,
  age: oneOf(AGES),
  appealed: flag,
};
export type CaseFilters = FiltersOf<typeof filterSchema>;

/** The query of the API. Ages count from now. */
export function queryOf(filters: CaseFilters, now: number): CaseQuery {
  const { status, topic, author, reason, rule, age, appealed } = filters;
  const [, side, days] = /^(newer|older)(\d+)$/.exec(age ?? '') ?? [];
  const at = now - Number(days ?? 0) * DAY_MS;
  const given = {
    status: status === 'all' ? undefined : status,
    topic,
    author: author === undefined ? undefined : pubkeyOf(author),
    reason,
    rule_id: rule,
    since: side === 'newer' ? at : undefined,
    until: side === 'older' ? at : undefined,
    appealed: appealed === true ? 'true' : undefined,
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as CaseQuery;
}

interface FiltersProps {
  readonly value: CaseFilters;
  readonly onChange: (change: Partial<CaseFilters>) => void;
}

const NONE: Partial<CaseFilters> = {
  topic: undefined,
  author: undefined,
  reason: undefined,
  rule: undefined,
  age: undefined,
  appealed: undefined,
};

export function Filters({ value, onChange }: FiltersProps) {
  const t = useT();
  const waiting = useWaiting();
  const rules = useRules().data ?? [];
  const { status, topic, author, reason, rule, age, appealed } = value;
  const counted = (name: string, count: { count: number; more: boolean } | undefined) =>
    count === undefined ? name : `${name} ${upTo(count)}`;
  const isNarrowed = Object.keys(NONE).some((key) => value[key as keyof CaseFilters] !== undefined);
  return (
    <Paper withBorder p="sm" mb="md" component="search" aria-label={t('cases:filters')}>
      <Group gap="sm" align="flex-end">
        <SegmentedControl
          aria-label={t('cases:state')}
          value={status}
          onChange={(next) => onChange({ status: next as CaseFilters['status'] })}
          data={[
            { value: 'open', label: counted(t('cases:status.open'), waiting?.open) },
            { value: 'held', label: counted(t('cases:status.held'), waiting?.held) },
            { value: 'resolved', label: t('cases:status.resolved') },
            { value: 'dismissed', label: t('cases:status.dismissed') },
            { value: 'all', label: t('cases:allStatuses') },
          ]}
        />
        <Switch
          pb={6}
          label={counted(t('cases:onlyAppealed'), waiting?.appealed)}
          checked={appealed ?? false}
          onChange={(event) => onChange({ appealed: event.currentTarget.checked || undefined })}
        />
        {isNarrowed && (
          <Button variant="subtle" leftSection={<IconX size={15} />} onClick={() => onChange(NONE)}>
            {t('cases:clear')}
          </Button>
        )}
      </Group>
      <SimpleGrid cols={{ base: 2, lg: 5 }} spacing="sm" verticalSpacing="xs" mt="sm">
        <Typed
          label={t('cases:topic')}
          value={topic ?? ''}
          onDone={(text) => onChange({ topic: text === '' ? undefined : text })}
        />
        <Typed
          label={t('cases:author')}
          placeholder="npub1…"
          value={author === undefined ? '' : npubOf(author)}
          problem={(text) => (pubkeyOf(text) === undefined ? t('cases:notAKey') : undefined)}
          onDone={(text) => onChange({ author: text === '' ? undefined : pubkeyOf(text) })}
        />
        <Select
          label={t('cases:reason')}
          placeholder={t('cases:any')}
          clearable
          clearButtonProps={{ 'aria-label': t('cases:clear') }}
          data={REASONS.map((one) => ({ value: one, label: t(`cases:reasons.${one}`) }))}
          value={reason ?? null}
          onChange={(next) => onChange({ reason: (next ?? undefined) as CaseFilters['reason'] })}
        />
        <Select
          label={t('cases:rule')}
          placeholder={t('cases:any')}
          clearable
          clearButtonProps={{ 'aria-label': t('cases:clear') }}
          data={rules.map(({ rule_id: id, name }) => ({ value: id, label: name }))}
          value={rule ?? null}
          onChange={(next) => onChange({ rule: next ?? undefined })}
        />
        <Select
          label={t('cases:age')}
          placeholder={t('cases:any')}
          clearable
          clearButtonProps={{ 'aria-label': t('cases:clear') }}
          data={AGES.map((one) => ({ value: one, label: t(`cases:ages.${one}`) }))}
          value={age ?? null}
          onChange={(next) => onChange({ age: (next ?? undefined) as CaseFilters['age'] })}
        />
      </SimpleGrid>
    </Paper>
  );
}

interface TypedProps {
  readonly label: string;
  readonly placeholder?: string;
  readonly value: string;
  readonly problem?: (text: string) => string | undefined;
  readonly onDone: (text: string) => void;
}

/** A text that counts when the reader leaves the field or presses Enter. */
export function Typed({ label, placeholder, value, problem, onDone }: TypedProps) {
  const [text, setText] = useState<string>();
  const shown = text ?? value;
  const wrong = shown.trim() === '' ? undefined : problem?.(shown);
  const finish = () => {
    if (text === undefined || wrong !== undefined) return;
    setText(undefined);
    if (text.trim() !== value) onDone(text.trim());
  };
  return (
    <TextInput
      label={label}
      placeholder={placeholder}
      value={shown}
      error={wrong}
      onChange={(event) => setText(event.currentTarget.value)}
      onBlur={finish}
      onKeyDown={(event) => {
        if (event.key === 'Enter') finish();
      }}
    />
  );
}
