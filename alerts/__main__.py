"""``python -m alerts``"""

import sys

from alerts.files import main

sys.exit(main())
