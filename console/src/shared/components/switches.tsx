/** Language and colours, the same on every page. */
import {
  ActionIcon,
  Group,
  SegmentedControl,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
} from '@mantine/core';
import { IconMoon, IconSun } from '@tabler/icons-react';
import { chooseLanguage, currentLanguage, type Language, useT } from '../i18n.js';

export function Switches() {
  const t = useT();
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme('light');
  return (
    <Group gap="xs" wrap="nowrap">
      <SegmentedControl
        size="xs"
        aria-label={t('shared:language')}
        value={currentLanguage()}
        onChange={(language) => void chooseLanguage(language as Language)}
        data={[
          { value: 'en', label: 'EN' },
          { value: 'ja', label: '日本語' },
        ]}
      />
      <Tooltip label={t('shared:colors')}>
        <ActionIcon
          variant="default"
          size="md"
          aria-label={t('shared:colors')}
          onClick={() => setColorScheme(scheme === 'dark' ? 'light' : 'dark')}
        >
          {scheme === 'dark' ? <IconSun size={17} /> : <IconMoon size={17} />}
        </ActionIcon>
      </Tooltip>
    </Group>
  );
}
