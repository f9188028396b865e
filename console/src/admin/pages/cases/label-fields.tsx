/** The fields of a label, for a case, a rule or a batch. */
import { Group, NumberInput, Select, TextInput } from '@mantine/core';
import { useT } from '../../../shared/i18n.js';
import type { LabelSpec } from './actions.js';
import { LABELS, type LabelName } from './types.js';

export const NEW_LABEL: LabelSpec = { label: 'spam', confidence: 1, days: 90, policy: '' };

interface LabelFieldsProps {
  readonly value: LabelSpec;
  readonly onChange: (value: LabelSpec) => void;
}

const asNumber = (given: string | number, otherwise: number) =>
  typeof given === 'number' && Number.isFinite(given) ? given : otherwise;

export function LabelFields({ value, onChange }: LabelFieldsProps) {
  const t = useT();
  return (
    <>
      <Group grow align="flex-start" wrap="wrap" preventGrowOverflow={false}>
        <Select
          label={t('cases:label')}
          data={LABELS.map((label) => ({ value: label, label: t(`cases:labels.${label}`) }))}
          value={value.label}
          allowDeselect={false}
          onChange={(label) => label !== null && onChange({ ...value, label: label as LabelName })}
        />
        <NumberInput
          label={t('cases:confidence')}
          min={0.01}
          max={1}
          step={0.1}
          decimalScale={2}
          value={value.confidence}
          onChange={(confidence) => onChange({ ...value, confidence: asNumber(confidence, 1) })}
        />
        <NumberInput
          label={t('cases:days')}
          min={1}
          max={3_650}
          allowDecimal={false}
          value={value.days}
          onChange={(days) => onChange({ ...value, days: asNumber(days, 90) })}
        />
      </Group>
      <TextInput
        label={t('cases:policy')}
        description={t('cases:policyAbout')}
        maxLength={500}
        value={value.policy}
        onChange={(event) => onChange({ ...value, policy: event.currentTarget.value })}
      />
    </>
  );
}
