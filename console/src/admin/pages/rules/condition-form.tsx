/** The fields of conditions, for a rule and for a batch. All that are given must hold. */
import { Group, NumberInput, TagsInput, Textarea } from '@mantine/core';
import { useT } from '../../../shared/i18n.js';
import type { ConditionFields, Problem } from './conditions.js';
import './texts.js';

interface ConditionFormProps {
  readonly value: ConditionFields;
  readonly onChange: (value: ConditionFields) => void;
  readonly problem: Problem | undefined;
  /** A batch has no rate. */
  readonly hasRate?: boolean;
  readonly disabled?: boolean;
}

export function ConditionForm({ value, onChange, problem, hasRate = false, disabled }: ConditionFormProps) {
  const t = useT();
  const set = (change: Partial<ConditionFields>) => onChange({ ...value, ...change });
  const shared = { disabled, splitChars: [',', '\n'], acceptValueOnBlur: true };
  const asNumber = (given: string | number) => (typeof given === 'number' ? given : '');
  return (
    <>
      <TagsInput
        {...shared}
        label={t('rules:words')}
        description={t('rules:wordsAbout')}
        value={[...value.words]}
        onChange={(words) => set({ words })}
      />
      <Textarea
        disabled={disabled}
        label={t('rules:patterns')}
        description={t('rules:patternsAbout')}
        autosize
        minRows={1}
        value={value.patterns}
        onChange={(event) => set({ patterns: event.currentTarget.value })}
      />
      <Group grow align="flex-start" preventGrowOverflow={false} wrap="wrap">
        <TagsInput
          {...shared}
          label={t('rules:topics')}
          value={[...value.topics]}
          onChange={(topics) => set({ topics })}
        />
        <TagsInput
          {...shared}
          label={t('rules:kinds')}
          placeholder="1"
          error={problem === 'kinds' ? t('rules:kindsWrong') : undefined}
          value={[...value.kinds]}
          onChange={(kinds) => set({ kinds })}
        />
      </Group>
      <TagsInput
        {...shared}
        label={t('rules:authors')}
        placeholder="npub1…"
        error={problem === 'authors' ? t('rules:authorsWrong') : undefined}
        value={[...value.authors]}
        onChange={(authors) => set({ authors })}
      />
      <Textarea
        disabled={disabled}
        label={t('rules:tags')}
        description={t('rules:tagsAbout')}
        autosize
        minRows={1}
        value={value.tags}
        onChange={(event) => set({ tags: event.currentTarget.value })}
      />
      {hasRate && (
        <Group grow align="flex-start" preventGrowOverflow={false} wrap="wrap">
          <NumberInput
            disabled={disabled}
            label={t('rules:rateCount')}
            error={problem === 'rate' ? t('rules:rateWrong') : undefined}
            min={1}
            max={1_000}
            allowDecimal={false}
            value={value.rateCount}
            onChange={(rateCount) => set({ rateCount: asNumber(rateCount) })}
          />
          <NumberInput
            disabled={disabled}
            label={t('rules:rateSeconds')}
            min={1}
            max={86_400}
            allowDecimal={false}
            value={value.rateSeconds}
            onChange={(rateSeconds) => set({ rateSeconds: asNumber(rateSeconds) })}
          />
        </Group>
      )}
    </>
  );
}
