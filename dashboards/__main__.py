"""``python -m dashboards``"""

import sys

from dashboards.files import main

sys.exit(main())
